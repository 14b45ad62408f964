package source

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/compose"
)

// ArtifactGeneratorGroupKind identifies the kind to the kernel.
var ArtifactGeneratorGroupKind = schema.GroupKind{Group: extensionsv1beta1.GroupVersion.Group,
	Kind: extensionsv1beta1.ArtifactGeneratorKind}

// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators/finalizers,verbs=update
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators/finalizers,verbs=patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories;buckets,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts;externalartifacts,verbs=get;list;watch

// maxFailures bounds how many failed outputs a message lists.
const maxFailures = 5

// ArtifactGenerator is the step of the kind: read the artifacts of the sources, compose the outputs, and publish those
// that have changed. A generator has many artifacts, one in each ExternalArtifact that it owns, so it is not a
// [Fetcher]; but it asks the gates at the same point, after resolving its sources and before reading their content.
type ArtifactGenerator struct {
	Client               client.Client // reads sources from a cache
	Store                *artifact.Store
	Artifacts            *artifact.Fetcher
	Outputs              Outputs
	NoCrossNamespaceRefs bool
}

// References lists the sources, and the outputs, so that an output that was deleted or changed is restored.
func (g *ArtifactGenerator) References(obj *extensionsv1beta1.ArtifactGenerator) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, s := range obj.Spec.Sources {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: s.Kind},
			namespaceOf(obj, s), s.Name))
	}
	for _, e := range obj.Status.Inventory {
		refs = append(refs, reconcile.RefTo(ExternalArtifactGroupKind, e.Namespace, e.Name))
	}
	if obj.Spec.PathPattern == "" {
		for _, a := range obj.Spec.Artifacts {
			refs = append(refs, reconcile.RefTo(ExternalArtifactGroupKind, obj.Namespace, a.Name))
		}
	}
	return refs
}

// Reconcile publishes the outputs. An output whose content did not change keeps its artifact, even if the revisions of
// its sources changed.
func (g *ArtifactGenerator) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*extensionsv1beta1.ArtifactGenerator]) reconcile.Outcome {
	obj := pass.Object
	declared := declaredOutputs(obj)
	if err := compose.Check(aliases(obj), obj.Spec.PathPattern, declared); err != nil {
		return reconcile.Failed(err)
	}
	if cycle := g.cycle(ctx, obj); cycle != nil {
		return reconcile.Failed(fault.New(extensionsv1beta1.ValidationFailedReason,
			"the artifacts depend on themselves: %s", strings.Join(cycle, " → ")).
			WithHint("Remove one of these from spec.sources").Final())
	}
	sources, outcome := g.sources(ctx, obj)
	if outcome != nil {
		return *outcome
	}
	owned, err := g.Outputs.Of(ctx, obj)
	if err != nil {
		return reconcile.Failed(err)
	}
	digest := sources.digest()
	if obj.Status.ObservedGeneration == obj.Generation {
		pass.CurrentRevision = obj.Status.ObservedSourcesDigest
	}
	if err := pass.Admit(digest); err != nil {
		return reconcile.Failed(err)
	}
	if pass.IsHeld() && g.isPublished(ctx, obj, owned) {
		return reconcile.Held(meta.Pending{})
	}
	if !pass.Requested && reconcile.IsReady(obj) && obj.Status.ObservedSourcesDigest == digest &&
		g.isPublished(ctx, obj, owned) {
		return generated(obj)
	}
	changes, err := g.publish(ctx, obj, declared, sources, owned)
	if err != nil {
		return withChanges(reconcile.Failed(err), changes)
	}
	obj.Status.ObservedSourcesDigest = digest
	return withChanges(generated(obj), changes)
}

// generated is the outcome of a generator whose outputs are all published.
func generated(obj *extensionsv1beta1.ArtifactGenerator) reconcile.Outcome {
	return reconcile.Ready(meta.SucceededReason, "generated %d artifact(s)", len(obj.Status.Inventory))
}

// withChanges adds an event with the changes to an outcome.
func withChanges(o reconcile.Outcome, changes []string) reconcile.Outcome {
	if len(changes) == 0 {
		return o
	}
	return o.Note(meta.ProgressingReason, "%s", strings.Join(changes, "\n"))
}

// isPublished reports whether all outputs in the inventory exist, unchanged and with complete artifacts, and no others.
func (g *ArtifactGenerator) isPublished(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	owned map[string]*sourcev1.ExternalArtifact) bool {
	for _, e := range obj.Status.Inventory {
		o := owned[e.Name]
		if o == nil || o.Status.Artifact == nil || o.Status.Artifact.Digest != e.Digest ||
			o.Status.Artifact.URL != g.Store.Address(o.Status.Artifact.Path) || !g.Outputs.isUnchanged(obj, o) ||
			g.Store.Verify(ctx, externalKey(e.Namespace, e.Name), o.Status.Artifact) != nil {
			return false
		}
	}
	return len(owned) == len(obj.Status.Inventory)
}

// publish composes and publishes the outputs, and deletes those that are no longer declared. It returns a
// description of each change. An output that fails does not stop the others, and its entry in the inventory
// stays.
func (g *ArtifactGenerator) publish(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	outputs []compose.Output, sources sourceSet, owned map[string]*sourcev1.ExternalArtifact) (changes []string,
	err error) {
	trees, err := g.trees(ctx, obj, sources)
	if err != nil {
		return nil, err
	}
	if obj.Spec.PathPattern != "" {
		if outputs, err = compose.Expand(obj.Spec.PathPattern, outputs, trees); err != nil {
			return nil, err
		}
	}
	var inventory []extensionsv1beta1.ExternalArtifactReference
	remaining := obj.Status.Inventory // entries of earlier passes that this pass has not replaced or deleted
	defer func() { obj.Status.Inventory = append(inventory, remaining...) }()
	var failures []error
	for _, o := range outputs {
		a, changed, err := g.output(ctx, obj, o, sources, trees, owned[o.Name])
		delete(owned, o.Name)
		if ctx.Err() != nil {
			return changes, ctx.Err()
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if changed {
			changes = append(changes, fmt.Sprintf("ExternalArtifact/%s/%s %s", obj.Namespace, o.Name, a.Revision))
		}
		inventory = append(inventory, extensionsv1beta1.ExternalArtifactReference{
			Name: o.Name, Namespace: obj.Namespace, Digest: a.Digest, Filename: path.Base(a.Path),
		})
		remaining = without(remaining, o.Name)
	}
	for _, o := range owned {
		if err := g.remove(ctx, o); err != nil {
			failures = append(failures, err)
			continue
		}
		remaining = without(remaining, o.Name)
		changes = append(changes, fmt.Sprintf("ExternalArtifact/%s/%s removed", o.Namespace, o.Name))
	}
	if len(failures) == 0 {
		remaining = nil
	}
	return changes, errors.Join(failures[:min(len(failures), maxFailures)]...)
}

// without returns the inventory without an entry.
func without(inventory []extensionsv1beta1.ExternalArtifactReference,
	name string) []extensionsv1beta1.ExternalArtifactReference {
	return slices.DeleteFunc(slices.Clone(inventory),
		func(e extensionsv1beta1.ExternalArtifactReference) bool { return e.Name == name })
}

// output composes and publishes one output. It returns its artifact, and whether something changed.
func (g *ArtifactGenerator) output(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator, o compose.Output,
	sources sourceSet, trees map[string]*artifact.Tree, live *sourcev1.ExternalArtifact) (*meta.Artifact, bool, error) {
	tree, err := compose.Build(o.Copies, trees)
	if err != nil {
		return nil, false, fmt.Errorf("artifact '%s': %w", o.Name, err)
	}
	live, changed, err := g.Outputs.Ensure(ctx, obj, o.Name, o.Labels, live)
	if err != nil {
		return nil, false, err
	}
	key, current := externalKey(obj.Namespace, o.Name), live.Status.Artifact
	a, err := g.Store.Put(ctx, key, tree, sources.revision(o.Revision), current)
	if err != nil {
		return nil, changed, err
	}
	if current == nil || current.Path != a.Path || current.Digest != a.Digest {
		a.Metadata = nil
		if origin := sources.origin(o.Origin); origin != "" {
			a.Metadata = map[string]string{meta.OriginRevisionKey: origin}
		}
	}
	published, err := g.Outputs.Publish(ctx, live, a)
	if err != nil {
		return nil, changed, err
	}
	_, err = g.Store.Collect(key, a)
	return a, changed || published, err
}

// Finalize removes the outputs.
func (g *ArtifactGenerator) Finalize(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) error {
	owned, err := g.Outputs.Of(ctx, obj)
	if err != nil {
		return err
	}
	for _, o := range owned {
		if err := g.remove(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an output and its artifact.
func (g *ArtifactGenerator) remove(ctx context.Context, o *sourcev1.ExternalArtifact) error {
	if err := g.Outputs.Delete(ctx, o); err != nil {
		return err
	}
	return g.Store.Remove(externalKey(o.Namespace, o.Name))
}

func externalKey(namespace, name string) artifact.Key {
	return artifact.Key{Kind: sourcev1.ExternalArtifactKind, Namespace: namespace, Name: name}
}

// cycle returns the generators along a cycle of ExternalArtifacts that contains this generator, or nil. In a
// cycle, each pass would cause another one.
func (g *ArtifactGenerator) cycle(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) []string {
	self := client.ObjectKeyFromObject(obj)
	seen := map[types.NamespacedName]bool{}
	var walk func(at *extensionsv1beta1.ArtifactGenerator, path []string) []string
	walk = func(at *extensionsv1beta1.ArtifactGenerator, path []string) []string {
		for _, s := range at.Spec.Sources {
			var output sourcev1.ExternalArtifact
			if s.Kind != sourcev1.ExternalArtifactKind ||
				g.Client.Get(ctx, types.NamespacedName{Namespace: namespaceOf(at, s), Name: s.Name}, &output) != nil ||
				output.Labels[extensionsv1beta1.GeneratorLabel] == "" || output.Spec.SourceRef == nil {
				continue
			}
			owner := types.NamespacedName{Namespace: output.Namespace, Name: output.Spec.SourceRef.Name}
			next := append(slices.Clone(path), owner.String())
			if owner == self {
				return next
			}
			var generator extensionsv1beta1.ArtifactGenerator
			if seen[owner] || g.Client.Get(ctx, owner, &generator) != nil {
				continue
			}
			seen[owner] = true
			if found := walk(&generator, next); found != nil {
				return found
			}
		}
		return nil
	}
	return walk(obj, []string{self.String()})
}

// declaredOutputs converts the outputs in the spec.
func declaredOutputs(obj *extensionsv1beta1.ArtifactGenerator) []compose.Output {
	outputs := make([]compose.Output, 0, len(obj.Spec.Artifacts))
	for _, a := range obj.Spec.Artifacts {
		o := compose.Output{Name: a.Name, Revision: a.Revision, Origin: a.OriginRevision}
		for _, c := range a.Copy {
			o.Copies = append(o.Copies, compose.Copy{From: c.From, To: c.To, Exclude: c.Exclude, Strategy: c.Strategy})
		}
		outputs = append(outputs, o)
	}
	return outputs
}
