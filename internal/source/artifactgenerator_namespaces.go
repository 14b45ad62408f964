package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/source/compose"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// fieldManager owns the metadata of managed Namespaces. Its name is that of other implementations.
const fieldManager = managedBy

// maxAllowedNames bounds the expressions of a generator.
const maxAllowedNames = 100

// protectedNamespaces are never managed, also if spec.managedNamespaces.allowedNames allows them.
var protectedNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// allowedNames compiles spec.managedNamespaces.allowedNames.
func (g *ArtifactGenerator) allowedNames(obj *extensionsv1beta1.ArtifactGenerator) ([]*expression.Expression, error) {
	if obj.Spec.ManagedNamespaces == nil {
		return nil, nil
	}
	sources := obj.Spec.ManagedNamespaces.AllowedNames
	if len(sources) > maxAllowedNames {
		return nil, invalidNames("has %d expressions, at most %d are allowed", len(sources), maxAllowedNames)
	}
	compiled := make([]*expression.Expression, 0, len(sources))
	for _, s := range sources {
		e, err := expression.Compile(s, "ns")
		if err != nil {
			return nil, invalidNames("'%.100s' is not valid: %s", s, err)
		}
		compiled = append(compiled, e)
	}
	return compiled, nil
}

func invalidNames(format string, args ...any) error {
	return fault.New(extensionsv1beta1.ValidationFailedReason, "spec.managedNamespaces.allowedNames: %s",
		fmt.Sprintf(format, args...)).
		WithHint("Correct the ArtifactGenerator. Its last artifacts stay available").Final()
}

// metadataPath returns the path of the files with metadata of Namespaces; empty if there are none.
func metadataPath(obj *extensionsv1beta1.ArtifactGenerator) string {
	if m := obj.Spec.ManagedNamespaces; m != nil && m.Metadata != nil && m.Metadata.FromSource != nil {
		return m.Metadata.FromSource.Path
	}
	return ""
}

// managedNamespaces creates the Namespaces of the outputs, and sets their labels and annotations.
type managedNamespaces struct {
	*publication
	allowed []*expression.Expression
	outputs []compose.Output

	results map[string]error // by name
}

// ensure creates or updates a Namespace, once in a pass.
func (n *managedNamespaces) ensure(ctx context.Context, name string) error {
	if err, done := n.results[name]; done {
		return err
	}
	digest, err := n.apply(ctx, name)
	if err == nil {
		n.record(extensionsv1beta1.InventoryEntry{Kind: namespaceKind, Name: name, Digest: digest})
	}
	if n.results == nil {
		n.results = map[string]error{}
	}
	n.results[name] = err
	return err
}

// apply creates or updates a Namespace, and returns the digest of its metadata.
func (n *managedNamespaces) apply(ctx context.Context, name string) (string, error) {
	if err := n.check(ctx, name); err != nil {
		return "", err
	}
	desired, err := n.metadata(name)
	if err != nil {
		return "", err
	}
	digest := digestOf(desired)
	writer, err := n.writers.of(ctx, name)
	if err != nil {
		return "", fmt.Errorf("cannot manage Namespace '%s': %w", name, err)
	}
	live, err := n.live(ctx, name)
	if err != nil {
		return "", err
	}
	if live == nil {
		live = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: n.reserved()}}
		if err := writer.Client.Create(ctx, live, client.FieldOwner(fieldManager)); err != nil {
			return "", failedNamespace(name, err)
		}
		n.change("Namespace/%s created", name)
	} else if err := n.mayManage(ctx, live); err != nil {
		return "", err
	}
	if isPaused(live) || strings.EqualFold(live.Annotations[extensionsv1beta1.SSAAnnotation],
		extensionsv1beta1.SSAIfNotPresent) {
		return digest, nil
	}
	known := slices.ContainsFunc(n.obj.Status.Inventory, func(e extensionsv1beta1.InventoryEntry) bool {
		return !isArtifact(e) && e.Name == name && e.Digest == digest
	})
	if known && contains(live.Labels, desired.Labels) && contains(live.Annotations, desired.Annotations) {
		return digest, nil
	}
	// The resource version makes the write fail if someone changed, or took over, the Namespace meanwhile.
	patch, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": namespaceKind, "metadata": map[string]any{
		"name": name, "resourceVersion": live.ResourceVersion, "labels": desired.Labels,
		"annotations": desired.Annotations}})
	if err != nil {
		return "", err
	}
	before := live.ResourceVersion
	if err := writer.Client.Patch(ctx, live, client.RawPatch(types.ApplyPatchType, patch),
		client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return "", failedNamespace(name, err)
	}
	if live.ResourceVersion != before {
		n.change("Namespace/%s configured", name)
	}
	return digest, nil
}

// check refuses Namespaces that must not be managed.
func (n *managedNamespaces) check(ctx context.Context, name string) error {
	if n.isProtected(name) {
		return fault.New(meta.AccessDeniedReason, "Namespace '%s' is never managed by a generator", name).
			WithHint("Choose another namespace in spec.artifacts, or rename the directory that it is captured from")
	}
	var cause error
	for _, e := range n.allowed {
		holds, err := e.Holds(ctx, expression.Map{"ns": name})
		if err == nil && holds {
			return nil
		}
		if err != nil {
			cause = fmt.Errorf("expression '%.100s': %w", e, err)
		}
	}
	f := fault.New(meta.AccessDeniedReason, "spec.managedNamespaces.allowedNames does not allow Namespace '%s'", name).
		WithHint("Add an expression that allows it, or choose another namespace in spec.artifacts")
	if cause != nil {
		f = f.Because(cause).WithHint("Correct the expression, or choose another namespace in spec.artifacts")
	}
	return f
}

// isProtected reports whether a Namespace is never written, and never deleted.
func (g *ArtifactGenerator) isProtected(name string) bool {
	return slices.Contains(protectedNamespaces, name) || name == g.ControllerNamespace
}

// live returns the Namespace, or nil if it does not exist.
func (g *ArtifactGenerator) live(ctx context.Context, name string) (*corev1.Namespace, error) {
	var live corev1.Namespace
	err := g.Outputs.Reader.Get(ctx, types.NamespacedName{Name: name}, &live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fault.New(meta.ReconciliationFailedReason, "cannot read Namespace '%s'", name).Because(err)
	}
	return &live, nil
}

// mayManage refuses an existing Namespace that has not been created by this generator or handed over to it.
func (n *managedNamespaces) mayManage(ctx context.Context, live *corev1.Namespace) error {
	if !live.DeletionTimestamp.IsZero() {
		return fault.New(meta.ReconciliationFailedReason, "Namespace '%s' is being deleted", live.Name).
			WithHint(createdAgainHint)
	}
	uid := live.Labels[extensionsv1beta1.GeneratorLabel]
	if uid == string(n.obj.UID) {
		return nil
	}
	hint := fmt.Sprintf("To hand it over, run: kubectl label namespace %s --overwrite %s=%s", live.Name,
		extensionsv1beta1.GeneratorLabel, n.obj.UID)
	if uid == "" {
		return fault.New(meta.AccessDeniedReason, "Namespace '%s' already exists and is not managed by this generator",
			live.Name).WithHint("%s", hint)
	}
	var others extensionsv1beta1.ArtifactGeneratorList
	if err := n.Outputs.Reader.List(ctx, &others); err != nil {
		return fault.New(meta.ReconciliationFailedReason, "cannot find the ArtifactGenerator of Namespace '%s'",
			live.Name).Because(err)
	}
	for _, o := range others.Items {
		if string(o.UID) == uid {
			return fault.New(meta.AccessDeniedReason, "Namespace '%s' is managed by ArtifactGenerator '%s/%s'",
				live.Name, o.Namespace, o.Name).WithHint("%s", hint)
		}
	}
	return nil // its generator no longer exists
}

// isPaused reports whether annotations keep a Namespace from being changed and deleted.
func isPaused(live *corev1.Namespace) bool {
	return strings.EqualFold(live.Annotations[extensionsv1beta1.ReconcileAnnotation],
		extensionsv1beta1.ReconcileDisabled) ||
		strings.EqualFold(live.Annotations[extensionsv1beta1.SSAAnnotation], extensionsv1beta1.SSAIgnore)
}

// removeNamespaces deletes the Namespaces of earlier passes that no output is in any more, if prune is set.
func (p *publication) removeNamespaces(ctx context.Context, outputs []compose.Output) {
	if p.obj.Spec.ManagedNamespaces == nil || !p.obj.Spec.ManagedNamespaces.Prune {
		return
	}
	for _, e := range slices.Clone(p.remaining) {
		if isArtifact(e) || slices.ContainsFunc(outputs,
			func(o compose.Output) bool { return o.Namespace == e.Name }) {
			continue
		}
		deleted, err := p.deleteNamespace(ctx, p.writers, p.obj, e.Name)
		switch {
		case err != nil:
			p.failures = append(p.failures, err)
		case deleted:
			p.change("Namespace/%s removed", e.Name)
		}
	}
}

// deleteNamespace deletes a Namespace that the generator manages, with all its content, and reports whether it did. It
// keeps one that another generator manages, that an annotation protects, or that another object finalizes. The caller
// has found it in the inventory: the label alone is not enough, as it can be set by whoever may change the Namespace.
func (g *ArtifactGenerator) deleteNamespace(ctx context.Context, w *writers, obj *extensionsv1beta1.ArtifactGenerator,
	name string) (bool, error) {
	live, err := g.live(ctx, name)
	if err != nil || live == nil || !live.DeletionTimestamp.IsZero() {
		return false, err
	}
	if g.isProtected(name) || name == obj.Namespace || isPaused(live) ||
		live.Labels[extensionsv1beta1.GeneratorLabel] != string(obj.UID) ||
		strings.EqualFold(live.Annotations[extensionsv1beta1.PruneAnnotation], extensionsv1beta1.PruneDisabled) {
		return false, nil
	}
	writer, err := w.of(ctx, name)
	if err != nil {
		return false, fmt.Errorf("cannot delete Namespace '%s': %w", name, err)
	}
	handedOver, err := isHandedOver(ctx, writer.Client, live)
	if err != nil || handedOver {
		return false, err
	}
	err = writer.Client.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return false, failedNamespace(name, err)
	}
	return true, nil
}

// isHandedOver reports whether the object that finalizes a Namespace exists. Its annotation has the form
// group/version/kind/namespace/name/uid. A Namespace with any other value is not handed over.
func isHandedOver(ctx context.Context, c client.Client, live *corev1.Namespace) (bool, error) {
	parts := strings.Split(live.Annotations[extensionsv1beta1.ExternalFinalizerAnnotation], "/")
	if len(parts) != 6 || parts[5] == "" {
		return false, nil
	}
	var object metav1.PartialObjectMetadata
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]})
	err := c.Get(ctx, types.NamespacedName{Namespace: parts[3], Name: parts[4]}, &object)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fault.New(meta.ReconciliationFailedReason, "cannot read the object that finalizes Namespace '%s'",
			live.Name).Because(err)
	}
	return string(object.UID) == parts[5], nil
}

// failedNamespace is the error of a failed write of a Namespace.
func failedNamespace(name string, err error) error {
	return fault.New(meta.ReconciliationFailedReason, "cannot write Namespace '%s'", name).Because(err)
}
