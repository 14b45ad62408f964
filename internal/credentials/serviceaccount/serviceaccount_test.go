package serviceaccount

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestAnnotationsAndTokens(t *testing.T) {
	t.Parallel()
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	account := types.NamespacedName{Namespace: testenv.Namespace(t), Name: "app"}
	a := Accounts{c, c}
	if _, err := a.Annotations(t.Context(), account); err == nil {
		t.Error("no error for the annotations of a service account that does not exist")
	}
	if _, err := a.Token(t.Context(), account, "sts.amazonaws.com"); err == nil {
		t.Error("no error for a token of a service account that does not exist")
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name,
		Annotations: map[string]string{"eks.amazonaws.com/role-arn": "role"}}}
	if err := c.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Annotations(t.Context(), account); err != nil || got["eks.amazonaws.com/role-arn"] != "role" {
		t.Errorf("annotations: %v, %v", got, err)
	}
	token, err := a.Token(t.Context(), account, "sts.amazonaws.com")
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token,
		Audiences: []string{"sts.amazonaws.com"}}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:" + account.Namespace + ":app"; !review.Status.Authenticated ||
		review.Status.User.Username != want {
		t.Errorf("token review: %+v, want user %s", review.Status, want)
	}
}
