package rollout

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get

// Removal finds out whether an object is deleted by itself, or because Sluice is removed: together with the definition
// of its kind, or with the namespace of the controllers. Such a deletion is meant for Sluice and not for what runs, so
// that the objects which it deployed must stay.
type Removal struct {
	Reader    client.Reader // not cached
	Namespace string        // of the controllers
}

// Of returns what is being removed together with an object, such as "CustomResourceDefinition 'x.example.com' is being
// deleted"; empty if the object is deleted by itself, or if the controllers have no right to find out.
func (r Removal) Of(ctx context.Context, owner reconcile.Ref) (string, error) {
	plural, _ := apimeta.UnsafeGuessKindToResource(owner.WithVersion(""))
	why, err := r.isRemoved(ctx, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}, plural.GroupResource().String())
	if why != "" || err != nil || owner.Namespace != r.Namespace {
		return why, err
	}
	return r.isRemoved(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, r.Namespace)
}

// DeletesNamespace reports whether a namespace is being deleted; false if that cannot be found out.
func (r Removal) DeletesNamespace(ctx context.Context, name string) bool {
	why, err := r.isRemoved(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, name)
	return why != "" && err == nil
}

// isRemoved returns that an object of the cluster is being deleted, or is gone; empty if it stays.
func (r Removal) isRemoved(ctx context.Context, gvk schema.GroupVersionKind, name string) (string, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, o)
	switch {
	case apierrors.IsForbidden(err): // a role of one namespace only
		return "", nil
	case err != nil && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("cannot find out whether %s '%s' is being deleted: %w", gvk.Kind, name, err)
	case err == nil && o.DeletionTimestamp.IsZero():
		return "", nil
	}
	return fmt.Sprintf("%s '%s' is being deleted", gvk.Kind, name), nil
}
