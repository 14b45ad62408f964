package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects of one request.
const pageSize = 500

// Object is an object of one of Flux's kinds.
type Object struct {
	Ref
	UID       types.UID `json:"uid"`
	Ready     string    `json:"ready"` // status of the Ready condition; "" if there is none
	Message   string    `json:"message,omitempty"`
	Suspended bool      `json:"suspended"`
	Moves     bool      `json:"moves"` // whether Sluice takes it over

	live *unstructured.Unstructured
}

// Ref identifies an object.
type Ref struct {
	Group     string `json:"group"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns Kind 'namespace/name'.
func (r Ref) String() string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + r.Name
	}
	return r.Kind + " '" + name + "'"
}

func (r Ref) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

func refOf(u *unstructured.Unstructured) Ref {
	gvk := u.GroupVersionKind()
	return Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// get reads the object of a reference.
func (e *Engine) get(ctx context.Context, r Ref) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.gvk())
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, u)
	return u, err
}

// getIfExists is get, but returns nil if the object or its kind does not exist.
func (e *Engine) getIfExists(ctx context.Context, r Ref) (*unstructured.Unstructured, error) {
	u, err := e.get(ctx, r)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get %s: %w", r, err)
	}
	return u, nil
}

// list calls use for all objects of a kind.
func list(ctx context.Context, c client.Reader, gvk schema.GroupVersionKind, use func(*unstructured.Unstructured) error,
	options ...client.ListOption) error {
	next := ""
	for {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(gvk)
		err := c.List(ctx, page, append(options, client.Limit(pageSize), client.Continue(next))...)
		if err != nil {
			return fmt.Errorf("cannot list %s objects: %w", gvk.Kind, err)
		}
		for i := range page.Items {
			if err := use(&page.Items[i]); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// objects returns all objects of Flux's kinds, in the order of the definitions.
func (e *Engine) objects(ctx context.Context, definitions []*definition) ([]Object, error) {
	var found []Object
	for _, d := range definitions {
		err := list(ctx, e.Client, d.storageGVK(), func(u *unstructured.Unstructured) error {
			found = append(found, e.object(u))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (e *Engine) object(u *unstructured.Unstructured) Object {
	o := Object{Ref: refOf(u), UID: u.GetUID(), live: u}
	o.Ready, o.Message = condition(u, "Ready")
	o.Suspended = isSuspended(u)
	controller := controllerFor(u.GroupVersionKind().GroupKind())
	o.Moves = controller != "" && e.moves(controller) && (controller != resourceSetController || !e.isSharded()) &&
		(len(e.Scope.Namespaces) == 0 || slices.Contains(e.Scope.Namespaces, u.GetNamespace()))
	return o
}

// isSuspended reports whether an object is not reconciled. The kinds of Flux Operator have an annotation for it.
func isSuspended(u *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	return suspended || u.GroupVersionKind().Group == operatorGroup &&
		strings.EqualFold(u.GetAnnotations()[operatorDisabled], "disabled")
}

// condition returns the status and the message of a condition, both "" if it does not exist.
func condition(u *unstructured.Unstructured, kind string) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, raw := range conditions {
		if c, ok := raw.(map[string]any); ok && c["type"] == kind {
			status, _ = c["status"].(string)
			message, _ = c["message"].(string)
			return status, strings.TrimSpace(message)
		}
	}
	return "", ""
}

// isAwaited reports whether a migration waits until the object is Ready again.
func (o Object) isAwaited() bool { return o.Moves && !o.Suspended && o.Ready == "True" }
