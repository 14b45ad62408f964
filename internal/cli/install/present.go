package install

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

// Present returns the objects of any installation in a namespace that exist, for all options and all tools
// that applied it. Objects of Flux are not among them.
func (t *Target) Present(ctx context.Context, namespace string) ([]*unstructured.Unstructured, error) {
	all, err := everything(namespace)
	if err != nil {
		return nil, err
	}
	installed, err := t.Installed(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var present []*unstructured.Unstructured
	for _, u := range distinct(append(all, installed...)) {
		live, err := t.live(ctx, u)
		if err != nil {
			return nil, cluster.Explain("cannot get "+u.GetKind()+" '"+u.GetName()+"'", err)
		}
		if live != nil && (!isFlux(live) || u.GetKind() == namespaceKind) && (!isOfOperator(live) || isOwn(live)) {
			present = append(present, u)
		}
	}
	return present, nil
}

// everything returns the objects of all options.
func everything(namespace string) ([]*unstructured.Unstructured, error) {
	one := Default("")
	one.Namespace, one.Profile = namespace, ProfileMultiTenant
	many := one
	many.Split = true
	first, err := Manifests(one)
	if err != nil {
		return nil, err
	}
	second, err := Manifests(many)
	return slices.Concat(first, second), err
}

// live returns an object of the cluster, or nil if it does not exist.
func (t *Target) live(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	gvk := u.GroupVersionKind()
	mapping, err := t.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if apimeta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var client dynamic.ResourceInterface = t.Dynamic().Resource(mapping.Resource)
	if u.GetNamespace() != "" {
		client = t.Dynamic().Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	live, err := client.Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}
