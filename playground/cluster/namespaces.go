package cluster

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"
)

// emptying is how soon a namespace that is not empty yet is looked at again.
const emptying = 200 * time.Millisecond

// startNamespaces empties and removes namespaces that are deleted. It is Kubernetes' own deletion, without the controller
// around it: that waits 5 s for the API servers to agree, of which there is one here, and 16 s for a pod that is gone.
func startNamespaces(ctx context.Context, client kubernetes.Interface, meta metadata.Interface, shared informers.SharedInformerFactory) error {
	core := client.CoreV1()
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, core.Namespaces(), meta, core,
		client.Discovery().ServerPreferredNamespacedResources, corev1.FinalizerKubernetes)
	return loop(ctx, shared.Core().V1().Namespaces().Informer(), func(ctx context.Context, ns *corev1.Namespace) (time.Duration, error) {
		if ns.DeletionTimestamp == nil {
			return 0, nil
		}
		err := deleter.Delete(ctx, ns.Name)
		if remaining := (*deletion.ResourcesRemainingError)(nil); errors.As(err, &remaining) {
			return emptying, nil
		}
		return 0, err
	})
}
