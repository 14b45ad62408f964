package kubewatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// Key identifies a watch by the objects that it covers.
type Key struct {
	Resource      schema.GroupVersionResource
	Namespace     string // empty for all namespaces
	Name          string // one object; empty for all objects
	LabelSelector string // empty for no filter
	Variant       string // distinguishes watches of the same objects that store different values
}

func (k Key) restrict(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector = k.LabelSelector
	if k.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.Name).String()
	}
	return o
}

// Client lists and watches objects of type O.
type Client[O metav1.Object] struct {
	List  func(context.Context, Key, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, Key, metav1.ListOptions) (apiwatch.Interface, error)

	origin any // the client behind the functions; a reflector asks it whether it supports streamed lists
}

// Dynamic returns a client for whole objects.
func Dynamic(d dynamic.Interface) Client[*unstructured.Unstructured] {
	return Client[*unstructured.Unstructured]{
		List: func(ctx context.Context, k Key, o metav1.ListOptions) (runtime.Object, error) {
			return d.Resource(k.Resource).Namespace(k.Namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, k Key, o metav1.ListOptions) (apiwatch.Interface, error) {
			return d.Resource(k.Resource).Namespace(k.Namespace).Watch(ctx, o)
		},
		origin: d,
	}
}

// Metadata returns a client for the metadata of objects.
func Metadata(m metadata.Interface) Client[*metav1.PartialObjectMetadata] {
	return Client[*metav1.PartialObjectMetadata]{
		List: func(ctx context.Context, k Key, o metav1.ListOptions) (runtime.Object, error) {
			return m.Resource(k.Resource).Namespace(k.Namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, k Key, o metav1.ListOptions) (apiwatch.Interface, error) {
			return m.Resource(k.Resource).Namespace(k.Namespace).Watch(ctx, o)
		},
		origin: m,
	}
}
