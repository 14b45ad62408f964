package access

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
)

// TestDefaultAccountIsUsed detects the account by the error: none of the accounts exists.
func TestDefaultAccountIsUsed(t *testing.T) {
	identities := &auth.Identities{Accounts: accounts{}, DefaultAccount: "tenant"}
	object := metav1.ObjectMeta{Namespace: "apps", Name: "app"}
	connector := Connector{Egress: &egress.Policy{}, Identities: identities}
	git := &Git{Connector: connector}
	registries := &Registries{Connector: connector}
	buckets := &Buckets{Connector: connector}
	for named, want := range map[string]string{"": "apps/tenant", "own": "apps/own"} {
		_, err := git.Remote(t.Context(), &sourcev1.GitRepository{ObjectMeta: object, Spec: sourcev1.GitRepositorySpec{
			URL: "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app", Provider: sourcev1.ProviderAWS,
			ServiceAccountName: named,
		}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("GitRepository with account %q: %v", named, err)
		}
		_, _, err = registries.Access(t.Context(), Registry{
			Namespace: "apps", URL: "oci://1.dkr.ecr.eu-west-1.amazonaws.com/app", Provider: sourcev1.ProviderAWS,
			ServiceAccount: named,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("registry with account %q: %v", named, err)
		}
		b, err := buckets.Resolve(t.Context(), &sourcev1.Bucket{ObjectMeta: object,
			Spec: sourcev1.BucketSpec{Provider: sourcev1.ProviderAWS, ServiceAccountName: named}})
		if err != nil || b.account == nil || b.account.String() != want {
			t.Errorf("Bucket with account %q: got %v, %v", named, b.account, err)
		}
	}
	if _, _, err := registries.Access(t.Context(),
		Registry{Namespace: "apps", URL: "oci://registry.example/app"}); err != nil {
		t.Errorf("registry without a cloud provider: %v", err)
	}
}
