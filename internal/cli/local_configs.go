package cli

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configs reads ConfigMaps and Secrets as they will be once what was built is applied, and all else as the
// cluster has it: a Kustomization may take its variables from what the one above it applies.
type configs struct {
	client.Reader
	built map[client.ObjectKey]map[string]*unstructured.Unstructured // by kind
}

// add notes what was built. What is masked says nothing.
func (c *configs) add(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetAPIVersion() != "v1" || o.GetKind() != "ConfigMap" && o.GetKind() != "Secret" || masked(o.Object) {
			continue
		}
		key := client.ObjectKey{Namespace: cmp.Or(o.GetNamespace(), metav1.NamespaceDefault), Name: o.GetName()}
		if c.built[key] == nil {
			c.built[key] = map[string]*unstructured.Unstructured{}
		}
		c.built[key][o.GetKind()] = o
	}
}

// Get returns what was built under this name, or else what the cluster has.
func (c *configs) Get(ctx context.Context, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		if u := c.built[key]["ConfigMap"]; u != nil {
			return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
		}
	case *corev1.Secret:
		u := c.built[key]["Secret"]
		if u == nil {
			break
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return err
		}
		for k, v := range obj.StringData {
			if obj.Data == nil {
				obj.Data = map[string][]byte{}
			}
			obj.Data[k] = []byte(v)
		}
		return nil
	}
	return c.Reader.Get(ctx, key, obj, o...)
}
