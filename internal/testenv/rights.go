package testenv

import (
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AwaitRight waits until the API server knows of a right that was just granted or taken away: its authorizer reads
// roles and bindings from a cache.
func AwaitRight(tb testing.TB, right authorizationv1.SubjectAccessReviewSpec, allowed bool) {
	tb.Helper()
	clients, err := kubernetes.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	Eventually(tb, "the right of '"+right.User+"'", func() error {
		r, err := clients.AuthorizationV1().SubjectAccessReviews().Create(tb.Context(),
			&authorizationv1.SubjectAccessReview{Spec: right}, metav1.CreateOptions{})
		if err == nil && r.Status.Allowed != allowed {
			err = fmt.Errorf("allowed is %t", r.Status.Allowed)
		}
		return err
	})
}

// AwaitAccount waits until a namespace has the ServiceAccount without which no Pod can be created in it.
func AwaitAccount(tb testing.TB, namespace string) {
	tb.Helper()
	clients, err := kubernetes.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	Eventually(tb, "the ServiceAccount of "+namespace, func() error {
		_, err := clients.CoreV1().ServiceAccounts(namespace).Get(tb.Context(), "default", metav1.GetOptions{})
		return err
	})
}
