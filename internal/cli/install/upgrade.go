package install

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// Upgrade is Run for an existing installation. If the new Deployments do not become available in time, it applies what
// was installed before, and returns why. Definitions are not taken back: older controllers work with newer ones. After
// success, all objects are stored in the current version of their definition.
func Upgrade(ctx context.Context, cfg *rest.Config, o Options, req Request) error {
	t, err := Connect(cfg, req.Timeout)
	if err != nil {
		return err
	}
	defer t.Close()
	former, err := t.Installed(ctx, o.Namespace)
	if err != nil {
		return err
	}
	for k := range former {
		former[k] = declaration(former[k])
	}
	req.Wait = true
	if err := Run(ctx, cfg, o, req); err != nil {
		if !isUnavailable(err) || len(former) == 0 {
			return err
		}
		req.Warn("%v", err)
		if undo := t.goBack(context.WithoutCancel(ctx), o, former, req); undo != nil {
			return fmt.Errorf("the upgrade failed, and so did the way back: %w. Run sluice upgrade --version with the "+
				"former version", undo)
		}
		return errors.New("the new version does not become available: the former manifests are applied again")
	}
	if req.DryRun {
		return nil
	}
	return migrateStored(ctx, cfg, req.Progress)
}

// goBack applies the former objects, removes those that the upgrade added, and waits.
func (t *Target) goBack(ctx context.Context, o Options, former []*unstructured.Unstructured, req Request) error {
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	req.Step("applying the former manifests")
	o, err := o.Complete()
	if err != nil {
		return err
	}
	i := &installer{Options: o, Request: req, Target: t, objects: former}
	result, err := t.Apply(ctx, apply.Request{Owner: Owner(o.Namespace), Objects: former})
	i.report(result.Changes)
	if err != nil {
		return err
	}
	added, err := i.stale(ctx)
	if err != nil {
		return err
	}
	if _, err := t.Prune(ctx, Owner(o.Namespace), added); err != nil {
		return err
	}
	return i.wait(ctx)
}

// declaration returns a live object without what the cluster adds, so that it can be applied again.
func declaration(live *unstructured.Unstructured) *unstructured.Unstructured {
	u := live.DeepCopy()
	delete(u.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation",
		"selfLink"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	annotations := u.GetAnnotations()
	delete(annotations, "deployment.kubernetes.io/revision")
	u.SetAnnotations(annotations)
	return u
}

// migrateStored stores all objects in the current versions of their definitions. Without it, a version can never be
// removed.
func migrateStored(ctx context.Context, cfg *rest.Config, p Progress) error {
	c, err := migrate.NewClient(cfg)
	if err != nil {
		return cluster.Explain("cannot reach the cluster", err)
	}
	results, err := migrate.StoredVersions(ctx, c, false)
	for _, s := range results {
		if !s.IsCurrent() {
			p.Done("%d objects of %s are stored in version %s", s.Objects, s.Name, s.Version)
		}
	}
	return cluster.Explain("cannot migrate stored versions", err)
}
