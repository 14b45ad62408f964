package manager

import (
	"context"
	"fmt"
	"net"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/receiver"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// runReceivers reconciles Receivers, and takes their webhooks.
func (p *process) runReceivers(ctx context.Context) error {
	plans := &receiver.Plans{Secrets: p.mgr.GetAPIReader(), NoCrossNamespaceRefs: p.noCrossNamespaceRefs()}
	if err := reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*notificationv1.Receiver]{
		GroupKind:  receiver.GroupKind,
		New:        func() *notificationv1.Receiver { return &notificationv1.Receiver{} },
		Concurrent: p.Concurrent,
		Step:       &receiver.Receiver{Plans: plans},
	}); err != nil {
		return err
	}
	if p.ReceiverAddr == "" || p.ReceiverAddr == "0" {
		return nil
	}
	if err := receiver.IndexPaths(ctx, p.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	issuers, err := p.forTenants().Transport(egress.Options{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", p.ReceiverAddr)
	if err != nil {
		return fmt.Errorf("cannot take webhooks on --receiverAddr %s: %w", p.ReceiverAddr, err)
	}
	server := receiver.NewServer(&receiver.Server{
		Cache: p.mgr.GetCache(), Reader: p.mgr.GetAPIReader(), Writer: p.mgr.GetClient(), Mapper: p.mgr.GetRESTMapper(),
		Plans: plans, Check: &hook.Checker{Transport: issuers}, Clock: p.clock(),
	})
	return p.mgr.Add(&ctrlmanager.Server{Name: "webhooks", Listener: listener, Server: server})
}
