package manager

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestServiceAccountsForWorkloadIdentity(t *testing.T) {
	t.Parallel()
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	account := types.NamespacedName{Namespace: testenv.Namespace(t), Name: "app"}
	a := accounts{c, c}
	if _, err := a.Annotations(t.Context(), account); err == nil {
		t.Error("an account that does not exist has annotations")
	}
	if _, err := a.Token(t.Context(), account, "sts.amazonaws.com"); err == nil {
		t.Error("an account that does not exist has a token")
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name,
		Annotations: map[string]string{"eks.amazonaws.com/role-arn": "role"}}}
	if err := c.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Annotations(t.Context(), account); err != nil || got["eks.amazonaws.com/role-arn"] != "role" {
		t.Errorf("the annotations are %v, %v", got, err)
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
	if !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:"+account.Namespace+
		":app" {
		t.Errorf("the token is that of %+v", review.Status)
	}
}
