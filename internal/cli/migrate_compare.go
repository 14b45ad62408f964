package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/localbuild"
	"github.com/sluice-gitops/sluice/internal/cli/localrelease"
	"github.com/sluice-gitops/sluice/internal/migrate"
)

// lenientFlag is the setting with which variables may be missing.
const lenientFlag = "StrictPostBuildSubstitutions=false"

// comparer compares what Flux applied with what Sluice would apply.
type comparer struct {
	*env
	config *rest.Config
	client client.WithWatch
	target *apply.Cluster
}

// comparer returns the function for [migrate.Engine.Compare]. Call done at the end.
func (o *migrateFlux) comparer(cfg *rest.Config) (
	compare func(context.Context, migrate.Object, migrate.Settings) migrate.Comparison, done func(), err error) {
	c := &comparer{env: o.env, config: cfg}
	if c.client, err = o.Client(); err != nil {
		return nil, nil, err
	}
	if c.target, err = apply.NewCluster(cfg, apply.ClusterOptions{}); err != nil {
		return nil, nil, err
	}
	return c.compare, c.target.Close, nil
}

func (c *comparer) compare(ctx context.Context, o migrate.Object, s migrate.Settings) migrate.Comparison {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	diff := c.kustomization
	if o.Kind != kustomizev1.KustomizationKind {
		diff = c.release
	}
	changes, err := diff(ctx, key, s)
	if err != nil {
		return migrate.Comparison{Skipped: err.Error()}
	}
	var result migrate.Comparison
	for _, change := range changes {
		onlyOwners := change.Action == apply.Configured && change.Diff == "" // Flux changes them as well
		switch {
		case change.Action == apply.Unchanged, change.Action == apply.Skipped, onlyOwners:
			result.Unchanged++
		default:
			result.Changes = append(result.Changes, change.Ref.String()+" "+string(change.Action))
		}
	}
	return result
}

// kustomization returns what applying a Kustomization would change. Its source is read through the API server.
func (c *comparer) kustomization(ctx context.Context, key types.NamespacedName, s migrate.Settings) ([]apply.Change,
	error) {
	obj := &kustomizev1.Kustomization{}
	if err := c.client.Get(ctx, key, obj); err != nil {
		return nil, err
	}
	if obj.Spec.KubeConfig != nil {
		return nil, errors.New("it applies to another cluster")
	}
	tree, _, err := localrelease.Fetch(ctx, localrelease.Cluster{Client: c.client, Config: c.config},
		obj.Spec.SourceRef.Kind, types.NamespacedName{Name: obj.Spec.SourceRef.Name,
			Namespace: cmp.Or(obj.Spec.SourceRef.Namespace, obj.Namespace)})
	if err != nil {
		return nil, err
	}
	strict := !slices.ContainsFunc(s.Args, func(arg string) bool { return strings.Contains(arg, lenientFlag) })
	builder := localbuild.New(localbuild.Options{Strict: strict}, c.client, func(string) {})
	builder.UseSource(obj, tree)
	var changes []apply.Change
	err = builder.Build(ctx, key, func(r *localbuild.Result) error {
		req, err := r.ApplyRequest(ctx, c.target, obj)
		if err != nil {
			return err
		}
		found, err := c.target.Diff(ctx, req)
		changes = append(changes, found...)
		return err
	})
	return changes, err
}

// release returns what an upgrade of a HelmRelease would change. No upgrade runs unless values or chart change, so
// these changes are what a drift correction would do at most.
func (c *comparer) release(ctx context.Context, key types.NamespacedName, _ migrate.Settings) ([]apply.Change, error) {
	builder, target, done, err := newLocalRelease(c.env, localrelease.Options{})
	defer done()
	if err != nil {
		return nil, err
	}
	result, err := builder.Build(ctx, key)
	if err != nil {
		return nil, err
	}
	if result.Object.Spec.KubeConfig != nil {
		return nil, errors.New("it releases to another cluster")
	}
	req, err := result.ApplyRequest(ctx, target)
	if err != nil {
		return nil, err
	}
	return target.Diff(ctx, req)
}
