package rollout

import (
	"testing"

	"k8s.io/client-go/rest"
)

// TestScopesOfClusters has configurations by which another server than the API server of the host can answer: they must
// not share its state.
func TestScopesOfClusters(t *testing.T) {
	plain := &rest.Config{Host: "https://cluster.example:6443"}
	for _, test := range []struct {
		name   string
		config *rest.Config
		same   bool
	}{
		{name: "slash", config: &rest.Config{Host: "https://cluster.example:6443/"}, same: true},
		{name: "other login", config: &rest.Config{Host: "https://cluster.example:6443", BearerToken: "t"}, same: true},
		{name: "Service behind the API server", config: &rest.Config{
			Host: "https://cluster.example:6443/api/v1/namespaces/a/services/slow/proxy"}},
		{name: "another cluster behind a gateway", config: &rest.Config{Host: "https://cluster.example:6443/k8s/b"}},
		{name: "server name", config: &rest.Config{Host: "https://cluster.example:6443",
			TLSClientConfig: rest.TLSClientConfig{ServerName: "slow.example"}}},
	} {
		if same := scopeOf(plain) == scopeOf(test.config); same != test.same {
			t.Errorf("%s: the scope is the same: %t", test.name, same)
		}
	}
}
