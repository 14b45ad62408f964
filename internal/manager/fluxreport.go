package manager

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/fluxreport"
)

// addFluxReport adds what writes the FluxReport. LeftTo returns which other controller writes it, if there is one.
func (p *process) addFluxReport(leftTo func(context.Context) string) error {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(p.mgr.GetConfig(), p.mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	return p.mgr.Add(guard.Runnable("writing the FluxReport", &fluxreport.Reporter{
		Client: p.mgr.GetClient(), Live: p.mgr.GetAPIReader(), Server: d.ServerVersion, Namespace: p.RuntimeNamespace,
		Version: p.Version, LeftTo: leftTo, Clock: clock.RealClock{},
		Kinds: func() []schema.GroupVersionKind { return p.kinds },
	}))
}
