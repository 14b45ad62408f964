package manager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
)

// accounts gives workload identity the service accounts of the cluster. They are read past the cache, which would hold all of them.
type accounts struct {
	reader client.Reader
	tokens client.Client
}

// Annotations implements auth.Accounts.
func (a accounts) Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error) {
	var sa corev1.ServiceAccount
	if err := a.reader.Get(ctx, account, &sa); err != nil {
		return nil, err
	}
	return sa.Annotations, nil
}

// Token implements auth.Accounts.
func (a accounts) Token(ctx context.Context, account types.NamespacedName, audience string) (string, error) {
	status, err := accountTokens(a.tokens)(ctx, account, []string{audience})
	if err != nil {
		return "", err
	}
	return status.Token, nil
}

// newEgress makes the one way out of the process, and what turns workload identity into credentials by it.
func newEgress(mgr ctrlmanager.Manager, o Options) (*egress.Policy, *auth.Identities, error) {
	policy := &egress.Policy{PerHost: o.requestsPerHost(), RefuseLinkLocal: !o.AllowLinkLocal}
	transport, err := policy.Transport(egress.Options{})
	if err != nil {
		return nil, nil, err
	}
	return policy, &auth.Identities{Accounts: accounts{mgr.GetAPIReader(), mgr.GetClient()}, Transport: transport}, nil
}
