package source

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// ExternalArtifactGroupKind identifies the kind, which has no controller: whoever makes an artifact publishes it in the
// object's status, and consumers fetch it from the address there and compare it with the digest.
var ExternalArtifactGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group,
	Kind: sourcev1.ExternalArtifactKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts/status,verbs=get;update;patch

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "source-watcher" // as on objects of other implementations, so that they are taken over as they are
)

// Published writes the ExternalArtifacts of generators.
type Published struct {
	Client client.Client
	Reader client.Reader // past the cache: an output must not be made twice
}

// Of returns the ExternalArtifacts of a generator, by name.
func (p Published) Of(ctx context.Context, g *extensionsv1beta1.ArtifactGenerator) (
	map[string]*sourcev1.ExternalArtifact, error) {
	var list sourcev1.ExternalArtifactList
	err := p.Reader.List(ctx, &list, client.InNamespace(g.Namespace),
		client.MatchingLabels{extensionsv1beta1.GeneratorLabel: string(g.UID)})
	if err != nil {
		return nil, fault.New(meta.ReconciliationFailedReason, "cannot list the ExternalArtifacts of this generator").
			Because(err)
	}
	owned := map[string]*sourcev1.ExternalArtifact{}
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp.IsZero() {
			owned[o.Name] = o
		}
	}
	return owned, nil
}

// Ensure makes the object of an output as it must be, but for its status. Live is the one that there is, nil
// if none is known.
func (p Published) Ensure(ctx context.Context, g *extensionsv1beta1.ArtifactGenerator, name string,
	labels map[string]string, live *sourcev1.ExternalArtifact) (*sourcev1.ExternalArtifact, bool, error) {
	if live == nil {
		created := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: name}}
		if err := p.shape(g, labels, created); err != nil {
			return nil, false, err
		}
		err := p.Client.Create(ctx, created)
		if err == nil {
			return created, true, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, false, failedOn(name, err)
		}
		if live, err = p.takeOver(ctx, g, name); err != nil {
			return nil, false, err
		}
	}
	desired := live.DeepCopy()
	if err := p.shape(g, labels, desired); err != nil {
		return nil, false, err
	}
	if equality.Semantic.DeepEqual(desired, live) {
		return live, false, nil
	}
	if err := p.Client.Patch(ctx, desired, client.MergeFromWithOptions(live,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, false, failedOn(name, err)
	}
	return desired, true, nil
}

// shape sets what a generator says of an ExternalArtifact.
func (p Published) shape(g *extensionsv1beta1.ArtifactGenerator, captured map[string]string,
	o *sourcev1.ExternalArtifact) error {
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	maps.Copy(o.Labels, captured)
	if m := g.Spec.CommonMetadata; m != nil {
		maps.Copy(o.Labels, m.Labels)
		if o.Annotations == nil && len(m.Annotations) > 0 {
			o.Annotations = map[string]string{}
		}
		maps.Copy(o.Annotations, m.Annotations)
	}
	o.Labels[managedByLabel], o.Labels[extensionsv1beta1.GeneratorLabel] = managedBy, string(g.UID)
	o.Spec.SourceRef = &meta.ObjectReference{
		APIVersion: extensionsv1beta1.GroupVersion.String(), Kind: extensionsv1beta1.ArtifactGeneratorKind,
		Name: g.Name, Namespace: g.Namespace,
	}
	o.OwnerReferences = nil
	if err := controllerutil.SetControllerReference(g, o, p.Client.Scheme()); err != nil {
		return failedOn(o.Name, err)
	}
	return nil
}

// stands tells whether an ExternalArtifact is as a generator said, as far as that is known without its sources.
func (p Published) stands(g *extensionsv1beta1.ArtifactGenerator, o *sourcev1.ExternalArtifact) bool {
	desired := o.DeepCopy()
	return p.shape(g, nil, desired) == nil && equality.Semantic.DeepEqual(desired, o)
}

// takeOver returns an ExternalArtifact of a generator that is gone. One of anybody else's stays theirs.
func (p Published) takeOver(ctx context.Context, g *extensionsv1beta1.ArtifactGenerator,
	name string) (*sourcev1.ExternalArtifact, error) {
	var o sourcev1.ExternalArtifact
	if err := p.Reader.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: name}, &o); err != nil {
		return nil, failedOn(name, err)
	}
	theirs := fault.New(meta.ReconciliationFailedReason,
		"ExternalArtifact '%s/%s' exists already, and this generator did not make it", g.Namespace, name).
		WithHint("Delete it, or choose another name in spec.artifacts")
	uid, ref := o.Labels[extensionsv1beta1.GeneratorLabel], o.Spec.SourceRef
	if uid == "" || ref == nil || ref.Kind != extensionsv1beta1.ArtifactGeneratorKind || !o.DeletionTimestamp.IsZero() {
		return nil, theirs
	}
	var other extensionsv1beta1.ArtifactGenerator
	err := p.Reader.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: ref.Name}, &other)
	if err == nil && string(other.UID) == uid || client.IgnoreNotFound(err) != nil {
		return nil, theirs
	}
	return &o, nil
}

// Publish writes the artifact into the status, if it is not there.
func (p Published) Publish(ctx context.Context, o *sourcev1.ExternalArtifact, a *meta.Artifact) (changed bool,
	err error) {
	desired := o.DeepCopy()
	desired.Status.Artifact = a
	desired.Status.ObservedGeneration = desired.Generation
	reconcile.Mark(desired, reconcile.TypeReady, metav1.ConditionTrue, meta.SucceededReason, "Artifact is ready")
	if equality.Semantic.DeepEqual(desired.Status, o.Status) {
		return false, nil
	}
	if err := p.Client.Status().Patch(ctx, desired, client.MergeFrom(o)); err != nil {
		return false, failedOn(o.Name, err)
	}
	return true, nil
}

// Delete deletes an ExternalArtifact of a generator, unless another took its name meanwhile.
func (p Published) Delete(ctx context.Context, o *sourcev1.ExternalArtifact) error {
	err := p.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID})
	if client.IgnoreNotFound(err) != nil {
		return failedOn(o.Name, err)
	}
	return nil
}

func failedOn(name string, err error) error {
	return fault.New(meta.ReconciliationFailedReason, "cannot write ExternalArtifact '%s'", name).Because(err)
}
