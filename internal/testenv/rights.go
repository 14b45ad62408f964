package testenv

import (
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// AwaitRight waits until the API server knows of a right that was just granted: its authorizer reads roles and bindings
// from a cache.
func AwaitRight(tb testing.TB, right authorizationv1.SubjectAccessReviewSpec) {
	tb.Helper()
	clients, err := kubernetes.NewForConfig(Cluster(tb))
	if err != nil {
		tb.Fatal(err)
	}
	Eventually(tb, "the right of '"+right.User+"'", func() error {
		r, err := clients.AuthorizationV1().SubjectAccessReviews().Create(tb.Context(),
			&authorizationv1.SubjectAccessReview{Spec: right}, metav1.CreateOptions{})
		if err == nil && !r.Status.Allowed {
			err = errors.New("it is not allowed")
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
