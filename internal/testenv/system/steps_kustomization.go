package system

import (
	"github.com/sluice-gitops/sluice/internal/credentials/serviceaccount"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// RemoteClusters are the clusters that objects name by a kubeconfig.
func (s *Steps) RemoteClusters() *rollout.RemoteClusters {
	s.Helper()
	o := s.Options()
	policy := o.SourceEgress()
	transport, err := policy.Transport(egress.Options{})
	if err != nil {
		s.Fatal(err)
	}
	accounts := serviceaccount.Accounts{Reader: s.Client, Client: s.Client}
	r := manager.RemoteClusters(o, policy)
	r.Reader, r.Identities = s.Client, &auth.Identities{Accounts: accounts, Transport: transport}
	r.Token, r.Self = accounts.RequestToken, accounts.Self
	return r
}
