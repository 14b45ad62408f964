package testenv

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// abandoned tells the playground to remove the finalizers in a namespace that is deleted: the controllers that would do
// it stopped with the test. Otherwise the cluster would retry to empty the namespace until it stops.
const abandoned = "playground.sluice.dev/abandoned"

// Namespace creates a namespace, which is deleted when the test ends.
func Namespace(tb testing.TB) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, namespaces := context.Background(), client.CoreV1().Namespaces()
		_, err := namespaces.Patch(ctx, ns.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+abandoned+`":""}}}`), metav1.PatchOptions{})
		if err == nil {
			err = namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) { // the test may have deleted it
			tb.Error(err)
		}
	})
	return ns.Name
}
