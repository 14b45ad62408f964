package source

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
)

// TestTheDefaultIdentityStandsInForNone tells by which account logins fail that there is not.
func TestTheDefaultIdentityStandsInForNone(t *testing.T) {
	identities := &auth.Identities{Accounts: accounts{}, DefaultAccount: "tenant"}
	object := metav1.ObjectMeta{Namespace: "apps", Name: "app"}
	connector := Connector{Egress: &egress.Policy{}, Identities: identities}
	git := &GitRepository{Connector: connector}
	registries := &Registries{Connector: connector}
	buckets := BucketLogin{Connector: connector}
	for named, want := range map[string]string{"": "apps/tenant", "own": "apps/own"} {
		_, err := git.Remote(t.Context(), &sourcev1.GitRepository{ObjectMeta: object, Spec: sourcev1.GitRepositorySpec{
			URL: "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app", Provider: sourcev1.ProviderAWS,
			ServiceAccountName: named,
		}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a GitRepository that names %q: %v", named, err)
		}
		_, _, err = registries.Reach(t.Context(), RegistryAccess{
			Namespace: "apps", URL: "oci://1.dkr.ecr.eu-west-1.amazonaws.com/app", Provider: sourcev1.ProviderAWS,
			ServiceAccount: named,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a registry by %q: %v", named, err)
		}
		a, err := buckets.access(t.Context(),
			&sourcev1.Bucket{ObjectMeta: object,
				Spec: sourcev1.BucketSpec{Provider: sourcev1.ProviderAWS, ServiceAccountName: named}})
		if err != nil || a.Account == nil || a.Account.String() != want {
			t.Errorf("a Bucket that names %q: %v, %v", named, a.Account, err)
		}
	}
	if _, _, err := registries.Reach(t.Context(),
		RegistryAccess{Namespace: "apps", URL: "oci://registry.example/app"}); err != nil {
		t.Errorf("no cloud, and yet an account is asked for: %v", err)
	}
}
