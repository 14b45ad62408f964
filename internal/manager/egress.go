package manager

import (
	"cmp"
	"net/http"
	"os"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
)

// wayOut is the one way out of the process, and what turns workload identity into credentials by it.
type wayOut struct {
	access.Connector
	transport http.RoundTripper // by the rules of Egress, with no options
}

func newWayOut(mgr ctrlmanager.Manager, o Options) (*wayOut, error) {
	policy := &egress.Policy{PerHost: o.requestsPerHost(), RefuseLinkLocal: !o.AllowLinkLocal,
		Timeouts: o.EgressTimeouts}
	transport, err := policy.Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	// No object can name the URL of these requests, so the link-local address of the metadata server is allowed.
	metadata, err := (&egress.Policy{PerHost: o.requestsPerHost()}).Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	identities := &auth.Identities{
		Accounts: accounts{mgr.GetAPIReader(), mgr.GetClient()}, Transport: transport, Metadata: metadata,
		Keep: o.keptTokens(), DefaultAccount: o.identityAccount(),
	}
	return &wayOut{access.Connector{Secrets: access.Secrets{Reader: mgr.GetAPIReader()}, Egress: policy,
		Identities: identities}, transport}, mgr.Add(collected{tokenMetrics{identities}})
}

// forTenants is the way out to addresses that tenants choose, and that are none of a source.
func (o *Options) forTenants() *egress.Policy {
	_, inCluster := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	return &egress.Policy{PerHost: o.requestsPerHost(), RefuseLinkLocal: true, RefuseLoopback: inCluster &&
		!o.AllowLoopback}
}

// identityAccount is the default account for logins to clouds. Where no Kustomization is applied,
// --default-service-account means just that, as elsewhere in the controllers of these kinds.
func (o *Options) identityAccount() string {
	if o.IdentityAccount == "" && !o.runs(KustomizeController) {
		return o.DefaultAccount
	}
	return o.IdentityAccount
}

// keptTokens is how many credentials auth.Identities keeps: the flag's 0 is none.
func (o *Options) keptTokens() int {
	if o.TokenCacheSize < 1 {
		return -1
	}
	return o.TokenCacheSize
}

// requestsPerHost leaves workers to the other hosts when one hangs.
func (o *Options) requestsPerHost() int {
	return max(1, min(cmp.Or(o.RequestsPerHost, egress.DefaultPerHost), o.Concurrent*3/4))
}
