package source

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/compose"
	"github.com/sluice-gitops/sluice/internal/text/fault"
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

// ArtifactGenerator is the step of the kind: read the artifacts of the sources, compose the outputs, and publish those
// that have changed. A generator has many artifacts, one in each ExternalArtifact that it owns, so it is not a
// [Fetcher]; but it asks the gates at the same point, after resolving its sources and before reading their content.
type ArtifactGenerator struct {
	Client               client.Client // reads sources from a cache
	Store                *artifact.Store
	Artifacts            *artifact.Fetcher
	Outputs              Outputs
	Events               reconcile.Events
	NoCrossNamespaceRefs bool
	OneNamespace         bool   // the process serves one namespace only, so outputs in others are refused
	ControllerNamespace  string // never managed
	// DefaultServiceAccount is impersonated for other namespaces if spec.serviceAccountName is not set.
	DefaultServiceAccount string
	// Impersonate returns a client that acts as a service account.
	Impersonate func(types.NamespacedName) (client.Client, error)
}

// References lists the sources, and the outputs, so that an output that was deleted or changed is restored.
func (g *ArtifactGenerator) References(obj *extensionsv1beta1.ArtifactGenerator) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, s := range obj.Spec.Sources {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: s.Kind},
			namespaceOf(obj, s), s.Name))
	}
	for _, e := range obj.Status.Inventory {
		if isArtifact(e) {
			refs = append(refs, reconcile.RefTo(ExternalArtifactGroupKind, e.Namespace, e.Name))
		}
	}
	if obj.Spec.PathPattern == "" {
		for _, a := range obj.Spec.Artifacts {
			refs = append(refs, reconcile.RefTo(ExternalArtifactGroupKind, cmp.Or(a.Namespace, obj.Namespace), a.Name))
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
	allowed, err := g.allowedNames(obj)
	if err != nil {
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
	owned, err := g.outputs(ctx, obj)
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
	// Without the trees, the metadata of managed Namespaces is not known, so their changes would not be found.
	if obj.Spec.ManagedNamespaces == nil && !pass.Requested && reconcile.IsReady(obj) &&
		obj.Status.ObservedSourcesDigest == digest && g.isPublished(ctx, obj, owned) {
		return generated(obj)
	}
	changes, err := g.publish(ctx, obj, declared, sources, owned, allowed)
	if err != nil {
		return withChanges(reconcile.Failed(err), changes)
	}
	obj.Status.ObservedSourcesDigest = digest
	return withChanges(generated(obj), changes)
}

// generated is the outcome of a generator whose outputs are all published.
func generated(obj *extensionsv1beta1.ArtifactGenerator) reconcile.Outcome {
	artifacts := 0
	for _, e := range obj.Status.Inventory {
		if isArtifact(e) {
			artifacts++
		}
	}
	return reconcile.Ready(meta.SucceededReason, "generated %d artifact(s)", artifacts)
}

// withChanges adds an event with the changes to an outcome.
func withChanges(o reconcile.Outcome, changes []string) reconcile.Outcome {
	if len(changes) == 0 {
		return o
	}
	return o.Note(meta.ProgressingReason, "%s", strings.Join(changes, "\n"))
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
			owner := ownerOf(&output)
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
		o := compose.Output{Name: a.Name, Namespace: cmp.Or(a.Namespace, obj.Namespace), Revision: a.Revision,
			Origin: a.OriginRevision, Inputs: a.InputsFrom, Metadata: metadataPath(obj)}
		for _, c := range a.Copy {
			o.Copies = append(o.Copies, compose.Copy{From: c.From, To: c.To, Exclude: c.Exclude, Strategy: c.Strategy,
				Optional: c.Optional})
		}
		outputs = append(outputs, o)
	}
	return outputs
}
