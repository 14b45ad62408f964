package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1",
	Resource: "selfsubjectaccessreviews"}

// may reports whether the account may do something with all objects of a resource in a namespace, or in all namespaces
// if it is empty. It reports false if the cluster does not say.
func (c *Cluster) may(ctx context.Context, verb string, resource schema.GroupVersionResource, namespace string) bool {
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{"verb": verb, "group": resource.Group,
			"resource": resource.Resource, "namespace": namespace}},
	}}
	response, err := c.dynamic.Resource(accessReviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false
	}
	allowed, _, _ := unstructured.NestedBool(response.Object, "status", "allowed")
	return allowed
}

// mayDelete reports whether the account may delete objects of a resource in all namespaces. The cluster is asked once
// for each resource.
func (c *Cluster) mayDelete(ctx context.Context, resource schema.GroupVersionResource) bool {
	c.mu.Lock()
	allowed, known := c.deletable[resource]
	c.mu.Unlock()
	if known {
		return allowed
	}
	allowed = c.may(ctx, "delete", resource, metav1.NamespaceAll)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletable[resource] = allowed
	return allowed
}
