package localbuild

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configOverlay reads ConfigMaps and Secrets as they will be once the built objects are applied, and all other objects
// from the cluster. A Kustomization may take its variables from objects that the one above it applies.
type configOverlay struct {
	client.Reader
	built map[client.ObjectKey]map[string]*unstructured.Unstructured // by kind
}

func newConfigOverlay(cluster client.Reader) *configOverlay {
	return &configOverlay{Reader: cluster, built: map[client.ObjectKey]map[string]*unstructured.Unstructured{}}
}

// add records built objects. Objects with masked values are skipped.
func (c *configOverlay) add(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetAPIVersion() != "v1" || o.GetKind() != "ConfigMap" && o.GetKind() != "Secret" || HasMasked(o.Object) {
			continue
		}
		key := client.ObjectKey{Namespace: cmp.Or(o.GetNamespace(), metav1.NamespaceDefault), Name: o.GetName()}
		if c.built[key] == nil {
			c.built[key] = map[string]*unstructured.Unstructured{}
		}
		c.built[key][o.GetKind()] = o
	}
}

// Get returns the built object of this name, or else the one in the cluster.
func (c *configOverlay) Get(ctx context.Context, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
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
