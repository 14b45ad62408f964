package system

import (
	"github.com/sluice-gitops/sluice/internal/credentials/serviceaccount"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// RemoteClusters are the clusters that objects name by a kubeconfig, with the settings of the options.
func (s *Steps) RemoteClusters() *rollout.RemoteClusters {
	s.Helper()
	o := s.Options()
	policy := o.SourceEgress()
	transport, err := policy.Transport(egress.Options{})
	if err != nil {
		s.Fatal(err)
	}
	transports := rollout.NewTransports(policy, nil)
	transports.QPS, transports.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	accounts := serviceaccount.Accounts{Reader: s.Client, Client: s.Client}
	return &rollout.RemoteClusters{
		Reader:     s.Client,
		Identities: &auth.Identities{Accounts: accounts, Transport: transport},
		Token:      accounts.RequestToken, Self: accounts.Self,
		DefaultAccount: o.KubeConfigAccount, AllowExec: o.KubeConfigExec, AllowInsecureTLS: o.KubeConfigTLS,
		Transports: transports,
	}
}
