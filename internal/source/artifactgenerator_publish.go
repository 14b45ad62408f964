package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/compose"
)

// maxFailures bounds how many failed outputs a message lists.
const maxFailures = 5

// namespaceKind is the kind of inventory entries of managed Namespaces.
const namespaceKind = "Namespace"

// createdAgainHint is the hint if an object that a generator needs is being deleted.
const createdAgainHint = "It is created again when it is gone"

// isArtifact reports whether an entry of an inventory is an ExternalArtifact.
func isArtifact(e extensionsv1beta1.InventoryEntry) bool { return e.Kind != namespaceKind }

// outputs returns the ExternalArtifacts of a generator that its inventory lists.
func (g *ArtifactGenerator) outputs(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) (outputSet, error) {
	others := func(namespace string) bool { return namespace != "" && namespace != obj.Namespace }
	found, err := g.Outputs.Of(ctx, obj, !g.OneNamespace && (slices.ContainsFunc(obj.Spec.Artifacts,
		func(a extensionsv1beta1.OutputArtifact) bool { return others(a.Namespace) }) ||
		slices.ContainsFunc(obj.Status.Inventory,
			func(e extensionsv1beta1.InventoryEntry) bool { return others(e.Namespace) || !isArtifact(e) })))
	if err != nil {
		return nil, err
	}
	// Others can give the label of this generator to objects that it did not write, and may not delete.
	owned := outputSet{}
	for _, e := range obj.Status.Inventory {
		key := types.NamespacedName{Namespace: cmp.Or(e.Namespace, obj.Namespace), Name: e.Name}
		if o := found[key]; o != nil && isArtifact(e) {
			owned[key] = o
		}
	}
	return owned, nil
}

// isPublished reports whether all outputs in the inventory exist, unchanged and with complete artifacts, and no others.
func (g *ArtifactGenerator) isPublished(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	owned outputSet) bool {
	artifacts := 0
	for _, e := range obj.Status.Inventory {
		if !isArtifact(e) {
			continue
		}
		artifacts++
		o := owned[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}]
		if o == nil || o.Status.Artifact == nil || o.Status.Artifact.Digest != e.Digest ||
			o.Status.Artifact.URL != g.Store.Address(o.Status.Artifact.Path) || !g.Outputs.isUnchanged(obj, o) ||
			g.Store.Verify(ctx, externalKey(e.Namespace, e.Name), o.Status.Artifact) != nil {
			return false
		}
	}
	return len(owned) == artifacts
}

// publication is one pass that publishes the outputs of a generator.
type publication struct {
	*ArtifactGenerator
	obj        *extensionsv1beta1.ArtifactGenerator
	sources    sourceSet
	trees      map[string]*artifact.Tree
	writers    *writers
	namespaces *managedNamespaces // nil if none is managed

	changes   []string // descriptions, for an event
	failures  []error
	inventory []extensionsv1beta1.InventoryEntry
	remaining []extensionsv1beta1.InventoryEntry // of earlier passes that this pass has not replaced or deleted
}

// publish composes and publishes the outputs, and deletes those that are no longer declared. It returns a
// description of each change. An output that fails does not stop the others, and its entry in the inventory
// stays.
func (g *ArtifactGenerator) publish(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator,
	outputs []compose.Output, sources sourceSet, owned outputSet, allowed []*expression.Expression) (changes []string,
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
	p := &publication{ArtifactGenerator: g, obj: obj, sources: sources, trees: trees,
		writers: &writers{generator: g, obj: obj}, remaining: slices.Clone(obj.Status.Inventory)}
	if obj.Spec.ManagedNamespaces != nil {
		p.namespaces = &managedNamespaces{publication: p, allowed: allowed, outputs: outputs}
	}
	defer func() { obj.Status.Inventory = append(p.inventory, p.remaining...) }()
	for _, o := range outputs {
		err := p.output(ctx, o, owned[keyOf(o)])
		delete(owned, keyOf(o))
		if ctx.Err() != nil {
			return p.changes, ctx.Err()
		}
		if err != nil {
			p.failures = append(p.failures, err)
		}
	}
	p.removeUndeclared(ctx, owned)
	if len(p.failures) == 0 {
		p.removeNamespaces(ctx, outputs)
	}
	if len(p.failures) == 0 {
		p.remaining = nil
	}
	return p.changes, errors.Join(p.failures[:min(len(p.failures), maxFailures)]...)
}

func keyOf(o compose.Output) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// change adds the description of a change.
func (p *publication) change(format string, args ...any) {
	p.changes = append(p.changes, fmt.Sprintf(format, args...))
}

// record adds an entry to the inventory, in place of that of an earlier pass.
func (p *publication) record(e extensionsv1beta1.InventoryEntry) {
	p.forget(e)
	p.inventory = append(p.inventory, e)
}

// forget removes the entry of an earlier pass.
func (p *publication) forget(e extensionsv1beta1.InventoryEntry) {
	p.remaining = slices.DeleteFunc(p.remaining, func(other extensionsv1beta1.InventoryEntry) bool {
		return isArtifact(other) == isArtifact(e) && other.Namespace == e.Namespace && other.Name == e.Name
	})
}

// output composes and publishes one output, in its Namespace.
func (p *publication) output(ctx context.Context, o compose.Output, live *sourcev1.ExternalArtifact) error {
	tree, err := compose.Build(ctx, o.Copies, p.trees)
	if err != nil {
		return fmt.Errorf("artifact '%s': %w", o.Name, err)
	}
	inputs, err := compose.Inputs(o, tree, p.trees)
	if err != nil {
		return fmt.Errorf("artifact '%s': %w", o.Name, err)
	}
	if p.namespaces != nil && o.Namespace != p.obj.Namespace {
		if err := p.namespaces.ensure(ctx, o.Namespace); err != nil {
			return err
		}
	}
	writer, err := p.writers.of(ctx, o.Namespace)
	if err != nil {
		return fmt.Errorf("artifact '%s': %w", keyOf(o), err)
	}
	live, changed, err := writer.Ensure(ctx, p.obj, o, live)
	if err != nil {
		return err
	}
	key, current := externalKey(o.Namespace, o.Name), live.Status.Artifact
	a, err := p.Store.Put(ctx, key, tree, p.sources.revision(o.Revision), current)
	if err != nil {
		return err
	}
	if current == nil || current.Path != a.Path || current.Digest != a.Digest {
		a.Metadata = p.sources.metadata(o.Origin)
	}
	published, err := writer.Publish(ctx, live, a, inputs)
	if err != nil {
		return err
	}
	if _, err = p.Store.Collect(key, a); err != nil {
		return err
	}
	if changed || published {
		p.change("ExternalArtifact/%s %s", keyOf(o), a.Revision)
	}
	p.record(extensionsv1beta1.InventoryEntry{Kind: sourcev1.ExternalArtifactKind, Name: o.Name,
		Namespace: o.Namespace, Digest: a.Digest, Filename: path.Base(a.Path)})
	return nil
}

// removeUndeclared deletes the ExternalArtifacts that are no longer declared.
func (p *publication) removeUndeclared(ctx context.Context, owned outputSet) {
	for key, o := range owned {
		if err := p.remove(ctx, p.writers, o); err != nil {
			p.failures = append(p.failures, err)
			continue
		}
		p.forget(extensionsv1beta1.InventoryEntry{Namespace: key.Namespace, Name: key.Name})
		p.change("ExternalArtifact/%s removed", key)
	}
}

// Finalize removes the outputs, and then the Namespaces if prune is set.
func (g *ArtifactGenerator) Finalize(ctx context.Context, obj *extensionsv1beta1.ArtifactGenerator) error {
	owned, err := g.outputs(ctx, obj)
	if err != nil {
		return err
	}
	w := &writers{generator: g, obj: obj}
	for _, o := range owned {
		if err := g.remove(ctx, w, o); err != nil && !g.leaves(ctx, w, obj, err) {
			return err
		}
	}
	if obj.Spec.ManagedNamespaces == nil || !obj.Spec.ManagedNamespaces.Prune {
		return nil
	}
	for _, e := range obj.Status.Inventory {
		if isArtifact(e) {
			continue
		}
		if _, err := g.deleteNamespace(ctx, w, obj, e.Name); err != nil && !g.leaves(ctx, w, obj, err) {
			return err
		}
	}
	return nil
}

// leaves reports whether an object that cannot be deleted is left, and says so: if the service account that may delete
// it no longer exists, as when its namespace is deleted, the generator would never be gone.
func (g *ArtifactGenerator) leaves(ctx context.Context, w *writers, obj *extensionsv1beta1.ArtifactGenerator,
	err error) bool {
	if !w.isMissing(ctx) {
		return false
	}
	message := "objects are left behind: " + err.Error()
	log.FromContext(ctx).Info(message)
	g.Events.Emit(ArtifactGeneratorGroupKind.Group, obj, reconcile.Event{Type: corev1.EventTypeWarning,
		Reason: meta.PruneFailedReason, Message: message})
	return true
}

// remove deletes an output and its artifact.
func (g *ArtifactGenerator) remove(ctx context.Context, w *writers, o *sourcev1.ExternalArtifact) error {
	writer, err := w.of(ctx, o.Namespace)
	if err == nil {
		err = writer.Delete(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("ExternalArtifact '%s': %w", client.ObjectKeyFromObject(o), err)
	}
	return g.Store.Remove(externalKey(o.Namespace, o.Name))
}

func externalKey(namespace, name string) artifact.Key {
	return artifact.Key{Kind: sourcev1.ExternalArtifactKind, Namespace: namespace, Name: name}
}
