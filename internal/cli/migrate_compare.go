package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/offline/localset"
	"github.com/sluice-gitops/sluice/internal/offline/localsource"
)

// lenientGate is the setting with which variables may be missing.
const lenientGate = "StrictPostBuildSubstitutions=false"

// comparer compares what Flux applied with what Sluice would apply.
type comparer struct {
	*env
	config  *rest.Config
	client  client.WithWatch
	sources *localsource.Reader
	target  *apply.Cluster // of Kustomizations; nil before the first one is compared
}

// comparer returns the function for [migrate.Engine.Compare]. Call done at the end.
func (o *migrateFlux) comparer(cfg *rest.Config) (
	compare func(context.Context, migrate.Object, migrate.Settings) migrate.Comparison, done func(), err error) {
	c := &comparer{env: o.env, config: cfg}
	if c.client, err = o.Client(); err != nil {
		return nil, nil, err
	}
	c.sources = localsource.New(localsource.Options{Live: c.client, Config: cfg})
	return c.compare, c.close, nil
}

func (c *comparer) close() {
	c.sources.Close()
	if c.target != nil {
		c.target.Close()
	}
}

func (c *comparer) compare(ctx context.Context, o migrate.Object, s migrate.Settings) (result migrate.Comparison) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	diff := c.kustomization
	switch o.Kind {
	case helmv2.HelmReleaseKind:
		diff = c.release
	case controlplanev1.ResourceSetKind:
		diff = c.resourceSet
	}
	changes, err := diff(ctx, key, s, &result)
	switch {
	case errors.Is(err, errOtherCluster), errors.Is(err, localset.ErrNoInputs), errors.As(err, &unreadableSource{}):
		result.Skipped = err.Error()
		result.Warnings = append(result.Warnings, result.Skipped+", so it was not compared")
		return result
	case err != nil:
		result.Failed = strings.TrimPrefix(err.Error(), fmt.Sprintf("%s '%s': ", o.Kind, key)) // the report names it
		return result
	}
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

// unreadableSource is why neither the artifact of Flux nor the source itself can be read from here. It says nothing of
// what the controllers can read.
type unreadableSource struct{ error }

var errOtherCluster = errors.New("it applies to another cluster")

// kustomization returns what applying a Kustomization would change.
func (c *comparer) kustomization(ctx context.Context, key types.NamespacedName, s migrate.Settings,
	result *migrate.Comparison) ([]apply.Change, error) {
	obj := &kustomizev1.Kustomization{}
	if err := c.client.Get(ctx, key, obj); err != nil {
		return nil, err
	}
	if obj.Spec.KubeConfig != nil {
		return nil, errOtherCluster
	}
	if err := c.connect(s); err != nil {
		return nil, err
	}
	tree, err := c.tree(ctx, obj, result)
	if err != nil {
		return nil, err
	}
	options, err := c.buildOptions(s, result)
	if err != nil {
		return nil, err
	}
	builder := localbuild.New(options, c.client, func(string) {})
	builder.UseSource(obj, tree)
	var changes []apply.Change
	err = builder.Build(ctx, key, func(r *localbuild.Result) error {
		if err := spec.CheckNotEmpty(obj, r.Result, obj.Status.LastAttemptedRevision); err != nil {
			return err
		}
		req, err := r.ApplyRequest(ctx, c.target, obj, nil)
		if err != nil {
			return err
		}
		found, err := c.target.Diff(ctx, req)
		changes = append(changes, found...)
		return err
	})
	return changes, err
}

// connect returns the cluster that Kustomizations are compared with, as our controllers will use it.
func (c *comparer) connect(s migrate.Settings) (err error) {
	if c.target == nil {
		c.target, err = apply.NewCluster(c.config,
			apply.ClusterOptions{OverrideManagers: valuesOf(s, "override-manager")})
	}
	return err
}

// buildOptions returns how our controllers will build.
func (c *comparer) buildOptions(s migrate.Settings, result *migrate.Comparison) (localbuild.Options, error) {
	warn := func(format string, args ...any) {
		result.Warnings = append(result.Warnings, fmt.Sprintf(format, args...))
	}
	var more []types.NamespacedName
	for _, name := range valuesOf(s, "sops-age-secret") {
		more = append(more, types.NamespacedName{Namespace: c.Namespace(), Name: name})
	}
	o := localbuild.Options{Strict: !slices.Contains(valuesOf(s, "feature-gates"), lenientGate),
		Keys: localbuild.KeysOf(c.client, warn, more...)}
	if slices.Contains(valuesOf(s, "no-remote-bases"), "false") {
		transport, err := (&egress.Policy{RefuseLinkLocal: true}).Transport(egress.Options{})
		if err != nil {
			return o, err
		}
		o.Fetch, o.FetchBase = remotebase.NewFetcher(transport), c.sources.FetchBase
	}
	return o, nil
}

// valuesOf returns the values of a flag of our controllers.
func valuesOf(s migrate.Settings, flag string) (values []string) {
	for _, arg := range s.Args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			values = append(values, strings.Split(value, ",")...)
		}
	}
	return values
}

// tree returns the files of a source as our source controller will have them, and notes those that the artifact of Flux
// lacks. If the source cannot be fetched here, it is the artifact of Flux, which is read through the API server.
func (c *comparer) tree(ctx context.Context, obj *kustomizev1.Kustomization, result *migrate.Comparison) (
	*artifact.Tree, error) {
	kind := obj.Spec.SourceRef.Kind
	key := types.NamespacedName{Name: obj.Spec.SourceRef.Name,
		Namespace: cmp.Or(obj.Spec.SourceRef.Namespace, obj.Namespace)}
	flux := localrelease.Cluster{Client: c.client, Config: c.config}
	theirs, revision, unreadable := localrelease.Fetch(ctx, flux, kind, key)
	if kind != sourcev1.GitRepositoryKind && kind != sourcev1.OCIRepositoryKind {
		return theirs, unreadable
	}
	ours, err := c.sources.Fetched(ctx, kind, key)
	if unreadable != nil {
		if err != nil {
			return nil, unreadableSource{unreadable}
		}
		result.Warnings = append(result.Warnings, fmt.Sprintf("%s '%s' was compared by the files that Sluice fetches "+
			"alone, since the artifact of Flux cannot be read: %v", kind, key, unreadable))
		return ours.Tree, nil
	}
	if err == nil && ours.Revision != revision {
		err = fmt.Errorf("it is at %s, and the artifact at %s", ours.Revision, revision)
	}
	if err != nil {
		result.Warnings = append(result.Warnings, fmt.Sprintf("%s '%s' was compared by the artifact of Flux alone, "+
			"since its files cannot be fetched from here: %v", kind, key, err))
		return theirs, nil
	}
	has := map[string]bool{}
	_ = theirs.Walk(func(name string, _ *artifact.Entry) error { has[name] = true; return nil })
	_ = ours.Tree.Walk(func(name string, _ *artifact.Entry) error {
		if !has[name] {
			result.Files = append(result.Files, name)
		}
		return nil
	})
	return ours.Tree, nil
}

// resourceSet returns what applying a ResourceSet would change, with the inputs that its providers have exported.
func (c *comparer) resourceSet(ctx context.Context, key types.NamespacedName, _ migrate.Settings,
	_ *migrate.Comparison) ([]apply.Change, error) {
	obj := &controlplanev1.ResourceSet{}
	if err := c.client.Get(ctx, key, obj); err != nil {
		return nil, err
	}
	objects, err := localset.Render(ctx, nil, c.client, obj)
	if err != nil {
		return nil, err
	}
	target, err := localset.NewTarget(c.config)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	req, err := localset.Request(ctx, target, obj, objects)
	if err != nil {
		return nil, err
	}
	return target.Diff(ctx, req)
}

// release returns what an upgrade of a HelmRelease would change. No upgrade runs unless values or chart change, so
// these changes are what a drift correction would do at most.
func (c *comparer) release(ctx context.Context, key types.NamespacedName, _ migrate.Settings,
	_ *migrate.Comparison) ([]apply.Change, error) {
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
		return nil, errOtherCluster
	}
	req, err := result.ApplyRequest(ctx, target, nil)
	if err != nil {
		return nil, err
	}
	return target.Diff(ctx, req)
}
