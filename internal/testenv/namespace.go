package testenv

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

// Namespace creates a namespace, which is deleted when the test ends.
func Namespace(tb testing.TB) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	objects, err := metadata.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		err := client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) { // the test may have deleted it
			return
		}
		if err := errors.Join(err, removeFinalizers(client.Discovery(), objects, ns.Name)); err != nil {
			tb.Error(err)
		}
	})
	return ns.Name
}

// removeFinalizers removes the finalizers of our objects in a deleted namespace, since the controllers that would do it
// stopped with the test. Otherwise the cluster would retry to empty the namespace until it stops.
func removeFinalizers(kinds discovery.DiscoveryInterface, objects metadata.Interface, namespace string) error {
	lists, err := kinds.ServerPreferredNamespacedResources()
	if err != nil && len(lists) == 0 { // discovery of some groups may fail
		return err
	}
	ours := discovery.FilteredBy(discovery.ResourcePredicateFunc(func(groupVersion string, _ *metav1.APIResource) bool {
		group, _, _ := strings.Cut(groupVersion, "/")
		return strings.HasSuffix(group, ".fluxcd.io") || group == "fluxcd.controlplane.io"
	}), lists)
	resources, err := discovery.GroupVersionResources(ours)
	if err != nil {
		return err
	}
	for resource := range resources {
		of := objects.Resource(resource).Namespace(namespace)
		all, err := of.List(context.Background(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // the definition was deleted
			continue
		}
		if err != nil {
			return err
		}
		for i := range all.Items {
			if o := &all.Items[i]; len(o.Finalizers) > 0 {
				_, err := of.Patch(context.Background(), o.Name, types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
	}
	return nil
}
