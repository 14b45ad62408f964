package manager

import (
	"context"
	"fmt"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/serviceaccount"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/notify/alert"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/receiver"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// addNotifications delivers the events of this process: by its Alerts, or to another process that has them.
func (p *process) addNotifications(ctx context.Context) error {
	var endpoint *delivery.Endpoint
	var err error
	switch {
	case p.Runs(options.NotificationController):
		endpoint, err = p.addAlerts(ctx)
	case p.ForwardsEvents():
		endpoint, err = p.forwardEvents()
	default:
		return nil
	}
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot get the host name: %w", err)
	}
	p.kernel.Events = reconcile.EmitToAll(p.kernel.Events, endpoint.KernelEvents(p.mgr.GetScheme(), host))
	p.serve("delivering notifications", endpoint.Start)
	return nil
}

// forwardEvents posts all events to the process at --events-addr, which applies the rate limit.
func (p *process) forwardEvents() (*delivery.Endpoint, error) {
	// Outside of a cluster the token is empty: the other process must accept events without one then.
	tokens := &serviceaccount.Tokens{Accounts: p.accounts, Clock: p.GetClock(), Audience: accessreview.EventsAudience}
	// The address is that of a flag, so it may be a loopback address.
	transport, err := (&egress.Policy{RefuseLinkLocal: true}).Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	to := &delivery.Forwarder{URL: p.EventsAddr, Client: &http.Client{Transport: transport}, Token: tokens.Get}
	o := p.DeliveryOptions()
	o.Router, o.Sender, o.RateLimit = to, to, -1
	o.Reporter = delivery.LogReporter(func(message string) { log.Log.WithName("notifications").Info(message) })
	return &delivery.Endpoint{Dispatcher: delivery.New(o)}, nil
}

// addAlerts adds the controllers of Alerts and Providers, and returns the endpoint that delivers events by them.
func (p *process) addAlerts(ctx context.Context) (*delivery.Endpoint, error) {
	router := &alert.Router{
		NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(),
		PlatformNamespace:    p.RuntimeNamespace,
		Labels:               alert.CachedLabels(p.mgr),
		Warn: func(a *notificationv1.Alert, message string) {
			p.kernel.Events.Emit(alert.AlertGroupKind.Group, a,
				reconcile.Event{Type: corev1.EventTypeWarning, Reason: "MetadataConflict", Message: message})
		},
	}
	sender := &alert.Sender{
		Router: router,
		Resolver: &alert.Resolver{
			Secrets: p.mgr.GetAPIReader(), Egress: p.TenantEgress(), Identities: p.remotes.Identities,
			Clock: p.GetClock(),
		},
		Health: &alert.Health{Edges: p.kernel.Edges},
	}
	o := p.DeliveryOptions()
	o.Router, o.Sender = router, sender
	o.Reporter = &alert.EventReporter{Alerts: p.mgr.GetCache(), Recorder: p.recorder}
	dispatcher := delivery.New(o)
	router.Deleted = func(provider types.NamespacedName) {
		dispatcher.Forget(provider)
		sender.Health.Forget(provider)
	}
	err := router.Observe(ctx, p.mgr.GetCache())
	if err != nil {
		return nil, err
	}
	// an Alert depends on the existence of its Provider only
	never := func(_, _ *notificationv1.Provider) bool { return false }
	if err := reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), alert.ProviderGroupKind,
		&notificationv1.Provider{}, never); err != nil {
		return nil, err
	}
	if err := registerKind(p, reconcile.Kind[*notificationv1.Alert]{GroupKind: alert.AlertGroupKind, NoFinalizer: true,
		Step: &alert.Alert{Client: p.mgr.GetClient(), NoCrossNamespaceRefs: router.NoCrossNamespaceRefs}}); err != nil {
		return nil, err
	}
	endpoint := &delivery.Endpoint{Dispatcher: dispatcher, Ready: router.Ready}
	if !options.IsDisabled(p.EventsAddr) {
		endpoint.Address, endpoint.Quota = p.EventsAddr, p.EventsQuota
		p.health.Set("events", "they are not accepted before Alerts and Providers are known")
		endpoint.Listens = func() { p.health.Set("events", "") }
	}
	if !p.OpenEvents {
		if endpoint.Senders, err = accessreview.NewSenders(p.mgr.GetConfig()); err != nil {
			return nil, err
		}
	}
	return endpoint, registerKind(p, reconcile.Kind[*notificationv1.Provider]{GroupKind: alert.ProviderGroupKind,
		NoFinalizer: true,
		Step:        &alert.Provider{Resolver: sender.Resolver, Health: sender.Health, Retry: dispatcher.Retry}})
}

// addReceivers adds the controller of Receivers and the server of their webhooks.
func (p *process) addReceivers(ctx context.Context) error {
	plans := &receiver.Plans{Secrets: p.mgr.GetAPIReader(), NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs()}
	if err := receiver.IndexPaths(ctx, p.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := register(p, receiver.GroupKind, reconcile.Ungated, &receiver.Receiver{Plans: plans,
		Cache: p.mgr.GetCache()}); err != nil {
		return err
	}
	if options.IsDisabled(p.ReceiverAddr) {
		return nil
	}
	issuers, err := p.TenantEgress().Transport(egress.Options{})
	if err != nil {
		return err
	}
	listener, err := listen.TCP(p.ReceiverAddr)
	if err != nil {
		return fmt.Errorf("cannot serve webhooks on --receiverAddr %s: %w. Choose another address with that "+
			"flag; port 0 takes a free one", p.ReceiverAddr, err)
	}
	server := receiver.NewServer(&receiver.Server{
		Cache: p.mgr.GetCache(), Reader: p.mgr.GetAPIReader(), Mapper: p.mgr.GetRESTMapper(),
		Writer: kubeclient.StandbyWriter(p.mgr.GetClient()), Plans: plans,
		Check: &hook.Checker{Transport: issuers}, Clock: p.GetClock(),
	})
	p.serveHTTP("webhooks", listener, server)
	return nil
}
