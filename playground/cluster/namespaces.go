package cluster

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"
)

// emptiers is the number of namespaces emptied concurrently. Each attempt takes a request per kind, so that on a slow
// machine a namespace would otherwise wait for all others.
const emptiers = 16

// startNamespaces empties and removes namespaces that are deleted. It is Kubernetes' own deletion, without
// the controller around it: that waits 5 s for the API servers to agree, of which there is one here, and 16 s
// for a pod that is gone.
func startNamespaces(ctx context.Context, client kubernetes.Interface, meta metadata.Interface,
	shared informers.SharedInformerFactory) error {
	core := client.CoreV1()
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, core.Namespaces(), meta, core,
		client.Discovery().ServerPreferredNamespacedResources, corev1.FinalizerKubernetes)
	return loop(ctx, shared.Core().V1().Namespaces().Informer(), emptiers,
		func(ctx context.Context, ns *corev1.Namespace) (time.Duration, error) {
			if ns.DeletionTimestamp == nil {
				return 0, nil
			}
			// it is an error that something remains: it is tried again, less and less often
			return 0, deleter.Delete(ctx, ns.Name)
		})
}
