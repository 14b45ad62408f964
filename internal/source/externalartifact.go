package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/compose"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// ExternalArtifactGroupKind identifies the kind to the kernel. It has no controller: the owner of an artifact publishes
// it in the status of the object, and consumers fetch it from its URL and check its digest.
var ExternalArtifactGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group,
	Kind: sourcev1.ExternalArtifactKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts/status,verbs=get;update;patch

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "source-watcher" // the value of other implementations, so that their objects need no change
)

// Outputs writes the ExternalArtifacts of generators.
type Outputs struct {
	Client client.Client
	Reader client.Reader // without a cache, so that no output is created twice
	// Status writes the status if Client acts as a service account, which then must have the right to. Policy
	// sluice-status lets only controllers write a status. Nil: Client writes it.
	Status client.Client
}

// outputSet is ExternalArtifacts by namespace and name.
type outputSet map[types.NamespacedName]*sourcev1.ExternalArtifact

// Of returns the ExternalArtifacts of a generator: those in its own namespace, and in all others if it can have some.
func (w Outputs) Of(ctx context.Context, g *extensionsv1beta1.ArtifactGenerator, others bool) (outputSet, error) {
	options := []client.ListOption{client.MatchingLabels{extensionsv1beta1.GeneratorLabel: string(g.UID)}}
	if !others {
		options = append(options, client.InNamespace(g.Namespace))
	}
	var list sourcev1.ExternalArtifactList
	if err := w.Reader.List(ctx, &list, options...); err != nil {
		return nil, fault.New(meta.ReconciliationFailedReason, "cannot list the ExternalArtifacts of this generator").
			Because(err)
	}
	owned := outputSet{}
	for i := range list.Items {
		// Whoever may write in another namespace could give the label to an object there, so it must also name us.
		if o := &list.Items[i]; o.DeletionTimestamp.IsZero() &&
			(o.Namespace == g.Namespace || ownerOf(o) == client.ObjectKeyFromObject(g)) {
			owned[client.ObjectKeyFromObject(o)] = o
		}
	}
	return owned, nil
}

// ownerOf returns the name of the generator that an ExternalArtifact references.
func ownerOf(o *sourcev1.ExternalArtifact) types.NamespacedName {
	if o.Spec.SourceRef == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: cmp.Or(o.Spec.SourceRef.Namespace, o.Namespace), Name: o.Spec.SourceRef.Name}
}

// Ensure creates or updates the object of an output, except its status. Live is the existing object, nil if none is
// known. It returns the object, and whether it changed.
func (w Outputs) Ensure(ctx context.Context, g *extensionsv1beta1.ArtifactGenerator, output compose.Output,
	live *sourcev1.ExternalArtifact) (*sourcev1.ExternalArtifact, bool, error) {
	key := types.NamespacedName{Namespace: output.Namespace, Name: output.Name}
	if live == nil {
		created := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := w.shape(g, output.Labels, created); err != nil {
			return nil, false, err
		}
		err := w.Client.Create(ctx, created)
		if err == nil {
			return created, true, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, false, failedOn(key, err)
		}
		if live, err = w.takeOver(ctx, g, key); err != nil {
			return nil, false, err
		}
	}
	desired := live.DeepCopy()
	if err := w.shape(g, output.Labels, desired); err != nil {
		return nil, false, err
	}
	if meta.Equal(desired, live) {
		return live, false, nil
	}
	if err := w.Client.Patch(ctx, desired, client.MergeFromWithOptions(live,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, false, failedOn(key, err)
	}
	return desired, true, nil
}

// shape sets the fields of an ExternalArtifact that its generator defines.
func (w Outputs) shape(g *extensionsv1beta1.ArtifactGenerator, labels map[string]string,
	o *sourcev1.ExternalArtifact) error {
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	maps.Copy(o.Labels, labels)
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
	if o.Namespace != g.Namespace {
		return nil // an owner in another namespace would have the object deleted by the garbage collector
	}
	if err := controllerutil.SetControllerReference(g, o, w.Client.Scheme()); err != nil {
		return failedOn(client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// isUnchanged reports whether an ExternalArtifact has the fields that its generator defines, except labels that are
// captured from the paths of the sources.
func (w Outputs) isUnchanged(g *extensionsv1beta1.ArtifactGenerator, o *sourcev1.ExternalArtifact) bool {
	desired := o.DeepCopy()
	return w.shape(g, nil, desired) == nil && meta.Equal(desired, o)
}

// takeOver returns an existing ExternalArtifact that this generator created before its status was written, or whose
// generator no longer exists. It refuses objects of other owners.
func (w Outputs) takeOver(ctx context.Context, g *extensionsv1beta1.ArtifactGenerator, key types.NamespacedName) (
	*sourcev1.ExternalArtifact, error) {
	var o sourcev1.ExternalArtifact
	if err := w.Reader.Get(ctx, key, &o); err != nil {
		return nil, failedOn(key, err)
	}
	refused := fault.New(meta.ReconciliationFailedReason,
		"ExternalArtifact '%s' already exists and belongs to another owner", key).
		WithHint("Delete it, or choose another name in spec.artifacts")
	uid, ref := o.Labels[extensionsv1beta1.GeneratorLabel], o.Spec.SourceRef
	if !o.DeletionTimestamp.IsZero() {
		return nil, fault.New(meta.ReconciliationFailedReason, "ExternalArtifact '%s' is being deleted", key).
			WithHint(createdAgainHint)
	}
	if uid == "" || ref == nil || ref.Kind != extensionsv1beta1.ArtifactGeneratorKind {
		return nil, refused
	}
	if uid == string(g.UID) && ownerOf(&o) == client.ObjectKeyFromObject(g) {
		return &o, nil
	}
	var other extensionsv1beta1.ArtifactGenerator
	err := w.Reader.Get(ctx, ownerOf(&o), &other)
	if client.IgnoreNotFound(err) != nil {
		return nil, failedOn(key, fmt.Errorf("cannot read its owner: %w", err))
	}
	if err == nil && string(other.UID) == uid {
		return nil, refused
	}
	return &o, nil
}

// Publish writes the artifact and the exported inputs to the status, and reports whether the status changed.
func (w Outputs) Publish(ctx context.Context, o *sourcev1.ExternalArtifact, a *meta.Artifact,
	inputs map[string]apiextensionsv1.JSON) (changed bool, err error) {
	desired := o.DeepCopy()
	desired.Status.Artifact = a
	if !equalInputs(o.Status.ExportedInputs, inputs) {
		desired.Status.ExportedInputs = inputs
	}
	desired.Status.ObservedGeneration = desired.Generation
	reconcile.Mark(desired, reconcile.TypeReady, metav1.ConditionTrue, meta.SucceededReason, "Artifact is ready")
	if meta.Equal(desired.Status, o.Status) {
		return false, nil
	}
	writer := w.Client
	if w.Status != nil {
		if err := w.mayPublish(ctx, o); err != nil {
			return false, err
		}
		writer = w.Status
	}
	if err := writer.Status().Patch(ctx, desired, client.MergeFrom(o)); err != nil {
		return false, failedOn(client.ObjectKeyFromObject(o), err)
	}
	return true, nil
}

// mayPublish returns nil if the service account may write the status of an ExternalArtifact.
func (w Outputs) mayPublish(ctx context.Context, o *sourcev1.ExternalArtifact) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: sourcev1.GroupVersion.Group,
			Resource: "externalartifacts", Subresource: "status", Namespace: o.Namespace, Name: o.Name}}}
	if err := w.Client.Create(ctx, review); err != nil {
		return failedOn(client.ObjectKeyFromObject(o), fmt.Errorf("cannot review the rights of the account: %w", err))
	}
	if !review.Status.Allowed {
		return fault.New(meta.AccessDeniedReason,
			"the service account may not write the status of ExternalArtifact '%s'", client.ObjectKeyFromObject(o)).
			WithHint("Grant it the verb patch on externalartifacts/status in namespace '%s'", o.Namespace)
	}
	return nil
}

// equalInputs reports whether inputs have the same values, which the API server may write in another form.
func equalInputs(a, b map[string]apiextensionsv1.JSON) bool {
	return maps.EqualFunc(a, b, func(a, b apiextensionsv1.JSON) bool {
		var left, right any
		return json.Unmarshal(a.Raw, &left) == nil && json.Unmarshal(b.Raw, &right) == nil && meta.Equal(left, right)
	})
}

// Delete deletes an ExternalArtifact of a generator. Another object that has taken its name meanwhile is kept.
func (w Outputs) Delete(ctx context.Context, o *sourcev1.ExternalArtifact) error {
	err := w.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID})
	if client.IgnoreNotFound(err) != nil {
		return failedOn(client.ObjectKeyFromObject(o), err)
	}
	return nil
}

// failedOn is the error of a failed write.
func failedOn(key types.NamespacedName, err error) error {
	return fault.New(meta.ReconciliationFailedReason, "cannot write ExternalArtifact '%s'", key).Because(err)
}
