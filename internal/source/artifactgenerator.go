package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators/finalizers,verbs=get;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories;buckets;helmrepositories;helmcharts;externalartifacts,verbs=get;list;watch

// maxFailures bounds how many outputs that fail a message names.
const maxFailures = 5

// ArtifactGenerator is the domain step of the kind: fetch the sources' trees, compose the outputs, publish
// what changed.
type ArtifactGenerator struct {
	Client               client.Client // reads sources from the cache
	Store                *artifact.Store
	Artifacts            *artifact.Fetcher
	Outputs              Published
	NoCrossNamespaceRefs bool
}

// References lists the sources, and the outputs, so that one that is deleted or changed by others is put back.
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

func namespaceOf(obj *extensionsv1beta1.ArtifactGenerator, s extensionsv1beta1.SourceReference) string {
	if s.Namespace == "" {
		return obj.Namespace
	}
	return s.Namespace
}

// Reconcile publishes the outputs that the sources give. An output whose content did not change keeps its
// artifact, whatever revision its sources are at.
func (g *ArtifactGenerator) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*extensionsv1beta1.ArtifactGenerator]) reconcile.Outcome {
	obj := pass.Object
	declared := outputsOf(obj)
	if err := compose.Check(aliasesOf(obj), obj.Spec.PathPattern, declared); err != nil {
		return reconcile.Failed(err)
	}
	if cycle := g.cycle(ctx, obj); cycle != nil {
		return reconcile.Failed(fault.New(extensionsv1beta1.ValidationFailedReason,
			"artifacts are made of themselves: %s", strings.Join(cycle, " → ")).
			WithHint("Remove one of these from spec.sources").Final())
	}
	sources, waiting := g.sources(ctx, obj)
	if waiting != nil {
		return *waiting
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
	if pass.IsHeld() && g.stand(ctx, obj, owned) {
		return reconcile.Held(meta.Pending{})
	}
	if !pass.Requested && reconcile.IsReady(obj) && obj.Status.ObservedSourcesDigest == digest &&
		g.stand(ctx, obj, owned) {
		return ready(obj)
	}
	changes, err := g.publish(ctx, obj, declared, sources, owned)
	if err != nil {
		return noted(reconcile.Failed(err), changes)
	}
	obj.Status.ObservedSourcesDigest = digest
	return noted(ready(obj), changes)
}

func ready(obj *extensionsv1beta1.ArtifactGenerator) reconcile.Outcome {
	return reconcile.Ready(meta.SucceededReason, "generated %d artifact(s)", len(obj.Status.Inventory))
}

func noted(o reconcile.Outcome, changes []string) reconcile.Outcome {
	if len(changes) == 0 {
		return o
	}
	return o.Note(meta.ProgressingReason, "%s", strings.Join(changes, "\n"))
}

// stand tells whether all outputs are published as this generator last published them.
func (g *ArtifactGenerator) stand(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	owned map[string]*sourcev1.ExternalArtifact) bool {
	for _, e := range obj.Status.Inventory {
		o := owned[e.Name]
		if o == nil || o.Status.Artifact == nil || o.Status.Artifact.Digest != e.Digest ||
			o.Status.Artifact.URL != g.Store.Address(o.Status.Artifact.Path) || !g.Outputs.stands(obj, o) ||
			g.Store.Verify(ctx, externalKey(e.Namespace, e.Name), o.Status.Artifact) != nil {
			return false
		}
	}
	return len(owned) == len(obj.Status.Inventory)
}

// publish composes the outputs, publishes them, and removes those that are no longer declared. It returns
// what it changed.
func (g *ArtifactGenerator) publish(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	outputs []compose.Output, sources sourceSet,
	owned map[string]*sourcev1.ExternalArtifact) (changes []string, err error) {
	trees, err := g.trees(ctx, sources)
	if err != nil {
		return nil, err
	}
	if obj.Spec.PathPattern != "" {
		if outputs, err = compose.Expand(obj.Spec.PathPattern, outputs, trees); err != nil {
			return nil, err
		}
	}
	var inventory []extensionsv1beta1.ExternalArtifactReference
	stale := obj.Status.Inventory
	// What fails stays in the inventory as it was.
	defer func() { obj.Status.Inventory = append(inventory, stale...) }()
	var failures []error
	for _, o := range outputs {
		a, changed, err := g.output(ctx, obj, o, sources, trees, owned[o.Name])
		delete(owned, o.Name)
		if ctx.Err() != nil {
			return changes, ctx.Err()
		}
		if err != nil { // the others are not held up
			failures = append(failures, err)
			continue
		}
		if changed {
			changes = append(changes, fmt.Sprintf("ExternalArtifact/%s/%s %s", obj.Namespace, o.Name, a.Revision))
		}
		inventory = append(inventory, extensionsv1beta1.ExternalArtifactReference{
			Name: o.Name, Namespace: obj.Namespace, Digest: a.Digest, Filename: path.Base(a.Path),
		})
		stale = without(stale, o.Name)
	}
	for _, o := range owned {
		if err := g.remove(ctx, o); err != nil {
			failures = append(failures, err)
			continue
		}
		stale = without(stale, o.Name)
		changes = append(changes, fmt.Sprintf("ExternalArtifact/%s/%s removed", o.Namespace, o.Name))
	}
	if len(failures) == 0 {
		stale = nil
	}
	return changes, errors.Join(failures[:min(len(failures), maxFailures)]...)
}

func without(inventory []extensionsv1beta1.ExternalArtifactReference,
	name string) []extensionsv1beta1.ExternalArtifactReference {
	return slices.DeleteFunc(slices.Clone(inventory),
		func(e extensionsv1beta1.ExternalArtifactReference) bool { return e.Name == name })
}

// output brings one output to what the sources give.
func (g *ArtifactGenerator) output(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator, o compose.Output,
	sources sourceSet,
	trees map[string]*artifact.Tree, live *sourcev1.ExternalArtifact) (*meta.Artifact, bool, error) {
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

func (g *ArtifactGenerator) remove(ctx context.Context, o *sourcev1.ExternalArtifact) error {
	if err := g.Outputs.Delete(ctx, o); err != nil {
		return err
	}
	return g.Store.Remove(externalKey(o.Namespace, o.Name))
}

func externalKey(namespace, name string) artifact.Key {
	return artifact.Key{Kind: sourcev1.ExternalArtifactKind, Namespace: namespace, Name: name}
}

// sourceSet is the artifacts of the sources, by alias.
type sourceSet map[string]*meta.Artifact

// sources returns the artifacts to compose, or what the generator waits for.
func (g *ArtifactGenerator) sources(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) (sourceSet,
	*reconcile.Outcome) {
	set := sourceSet{}
	for _, ref := range obj.Spec.Sources {
		namespace := namespaceOf(obj, ref)
		if g.NoCrossNamespaceRefs && namespace != obj.Namespace {
			o := reconcile.Failed(fault.New(meta.AccessDeniedReason,
				"source '@%s' is in namespace '%s': cross-namespace references have been blocked", ref.Alias,
				namespace).
				WithHint("Move it to namespace '%s', or ask whoever runs Sluice with --no-cross-namespace-refs or "+
					"--watch-all-namespaces=false", obj.Namespace).Final())
			return nil, &o
		}
		source := sourcev1.NewSource(ref.Kind)
		if source == nil {
			o := reconcile.Failed(fault.New(extensionsv1beta1.ValidationFailedReason,
				"source '@%s' is of kind %s, which has no artifact of files", ref.Alias, ref.Kind).Final())
			return nil, &o
		}
		err := g.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, source)
		if err == nil && source.GetArtifact() != nil {
			set[ref.Alias] = source.GetArtifact()
			continue
		}
		var o reconcile.Outcome
		switch {
		case err == nil:
			o = reconcile.Waiting(extensionsv1beta1.SourceFetchFailedReason,
				"source '@%s', %s '%s/%s', has no artifact yet. Its own conditions say why", ref.Alias, ref.Kind,
				namespace, ref.Name)
		case apierrors.IsNotFound(err):
			o = reconcile.Waiting(extensionsv1beta1.SourceFetchFailedReason,
				"source '@%s', %s '%s/%s', not found. Create it, or correct spec.sources", ref.Alias, ref.Kind,
				namespace, ref.Name)
		default:
			o = reconcile.Failed(fault.New(extensionsv1beta1.SourceFetchFailedReason,
				"cannot read source '@%s', %s '%s/%s'", ref.Alias, ref.Kind, namespace, ref.Name).Because(err))
		}
		return nil, &o
	}
	return set, nil
}

// cycle returns the generators along a cycle of ExternalArtifacts that this one is part of, or nil: its
// outputs would never come to rest.
func (g *ArtifactGenerator) cycle(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) []string {
	self := client.ObjectKeyFromObject(obj)
	seen := map[types.NamespacedName]bool{}
	var walk func(at *extensionsv1beta1.ArtifactGenerator, path []string) []string
	walk = func(at *extensionsv1beta1.ArtifactGenerator, path []string) []string {
		for _, s := range at.Spec.Sources {
			var made sourcev1.ExternalArtifact
			if s.Kind != sourcev1.ExternalArtifactKind ||
				g.Client.Get(ctx, types.NamespacedName{Namespace: namespaceOf(at, s), Name: s.Name}, &made) != nil ||
				made.Labels[extensionsv1beta1.GeneratorLabel] == "" || made.Spec.SourceRef == nil {
				continue
			}
			maker := types.NamespacedName{Namespace: made.Namespace, Name: made.Spec.SourceRef.Name}
			next := append(slices.Clone(path), maker.String())
			if maker == self {
				return next
			}
			var generator extensionsv1beta1.ArtifactGenerator
			if seen[maker] || g.Client.Get(ctx, maker, &generator) != nil {
				continue
			}
			seen[maker] = true
			if found := walk(&generator, next); found != nil {
				return found
			}
		}
		return nil
	}
	return walk(obj, []string{self.String()})
}

// trees fetches what the artifacts hold.
func (g *ArtifactGenerator) trees(ctx context.Context, sources sourceSet) (map[string]*artifact.Tree, error) {
	trees := map[string]*artifact.Tree{}
	for alias, a := range sources {
		tree, err := g.Artifacts.Fetch(ctx, *a)
		if err != nil {
			return nil, fault.New(extensionsv1beta1.SourceFetchFailedReason, "cannot fetch source '@%s'", alias).
				Because(err)
		}
		trees[alias] = tree
	}
	return trees, nil
}

// digest is the same as long as all sources are.
func (s sourceSet) digest() string {
	var lines []string
	for alias, a := range s {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", alias, a.Revision, a.Digest))
	}
	slices.Sort(lines)
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.Join(lines, ""))))
}

// revision returns the revision of the source that a reference names; nothing when it names none.
func (s sourceSet) revision(ref string) string {
	if a := s[strings.TrimPrefix(ref, "@")]; ref != "" && a != nil {
		return a.Revision
	}
	return ""
}

// origin returns what the source was made from in its turn, else its revision.
func (s sourceSet) origin(ref string) string {
	if a := s[strings.TrimPrefix(ref, "@")]; ref != "" && a.OriginRevision() != "" {
		return a.OriginRevision()
	}
	return s.revision(ref)
}

func aliasesOf(obj *extensionsv1beta1.ArtifactGenerator) (aliases []string) {
	for _, s := range obj.Spec.Sources {
		aliases = append(aliases, s.Alias)
	}
	return aliases
}

// outputsOf translates the spec.
func outputsOf(obj *extensionsv1beta1.ArtifactGenerator) []compose.Output {
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
