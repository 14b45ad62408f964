package install

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

// pageSize is the number of objects that one request lists.
const pageSize = 500

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
		return fmt.Errorf("the new version is not available after %s: the former manifests are applied again",
			req.Timeout)
	}
	if req.DryRun {
		return nil
	}
	return t.MigrateStored(ctx, req.Progress)
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

// MigrateStored rewrites the objects of definitions that were stored in several versions, so that only the current one
// is left, and records that in status.storedVersions. Without it, a version can never be removed.
func (t *Target) MigrateStored(ctx context.Context, p Progress) error {
	wanted, err := config.Definitions()
	if err != nil {
		return err
	}
	for _, want := range wanted {
		live, err := t.Dynamic().Resource(definitions).Get(ctx, want.GetName(), metav1.GetOptions{})
		if err != nil {
			return cluster.Explain("cannot get CustomResourceDefinition '"+want.GetName()+"'", err)
		}
		d := definitionOf(live)
		if slices.Equal(d.stored, []string{d.storage()}) {
			continue
		}
		p.Live("storing %s in version %s", want.GetName(), d.storage())
		count, err := t.rewrite(ctx, schema.GroupVersionResource{Group: d.group, Version: d.storage(),
			Resource: d.plural})
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedStringSlice(live.Object, []string{d.storage()}, "status",
			"storedVersions"); err != nil {
			return err
		}
		// A conflict means that the definition changed during the migration: the next run finishes it.
		if _, err := t.Dynamic().Resource(definitions).UpdateStatus(ctx, live, metav1.UpdateOptions{}); err != nil {
			return cluster.Explain("cannot record the stored version of '"+want.GetName()+
				"'; run the command again", err)
		}
		p.Done("%d objects of %s are stored in version %s", count, want.GetName(), d.storage())
	}
	return nil
}

// rewrite writes each object back as it is, which stores it in the current version. An object that changes or is
// deleted at the same time needs no write.
func (t *Target) rewrite(ctx context.Context, resource schema.GroupVersionResource) (int, error) {
	count, next := 0, ""
	for {
		list, err := t.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return count, cluster.Explain("cannot list "+resource.Resource, err)
		}
		for k := range list.Items {
			u := &list.Items[k]
			_, err := t.Dynamic().Resource(resource).Namespace(u.GetNamespace()).Update(ctx, u,
				metav1.UpdateOptions{FieldManager: fieldManager})
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return count, cluster.Explain(fmt.Sprintf("cannot store %s '%s/%s' in version %s", u.GetKind(),
					u.GetNamespace(), u.GetName(), resource.Version), err)
			}
			count++
		}
		if next = list.GetContinue(); next == "" {
			return count, nil
		}
	}
}
