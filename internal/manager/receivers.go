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
func runReceivers(ctx context.Context, mgr ctrlmanager.Manager, k *reconcile.Kernel, o Options) error {
	plans := &receiver.Plans{Secrets: mgr.GetAPIReader(), NoCrossNamespaceRefs: o.NoCrossNamespaceRef || !o.WatchAllNamespaces}
	if err := reconcile.Register(mgr, k, reconcile.Kind[*notificationv1.Receiver]{
		GroupKind:  receiver.GroupKind,
		New:        func() *notificationv1.Receiver { return &notificationv1.Receiver{} },
		Concurrent: o.Concurrent,
		Step:       &receiver.Receiver{Plans: plans},
	}); err != nil {
		return err
	}
	if o.ReceiverAddr == "" || o.ReceiverAddr == "0" {
		return nil
	}
	if err := receiver.IndexPaths(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	issuers, err := o.forTenants().Transport(egress.Options{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.ReceiverAddr)
	if err != nil {
		return fmt.Errorf("cannot take webhooks on --receiverAddr %s: %w", o.ReceiverAddr, err)
	}
	server := receiver.NewServer(&receiver.Server{
		Cache: mgr.GetCache(), Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Mapper: mgr.GetRESTMapper(),
		Plans: plans, Check: &hook.Checker{Transport: issuers}, Clock: o.clock(),
	})
	return mgr.Add(&ctrlmanager.Server{Name: "webhooks", Listener: listener, Server: server})
}
