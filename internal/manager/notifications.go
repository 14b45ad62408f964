package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// defaultEventsAddr is not the documented one, :9090, which is that of artifacts when one process runs all.
const defaultEventsAddr = ":9293"

// runNotifications lets events of this process, and those that others post to it, come to where --events-addr
// and the alerts want them.
func (p *process) runNotifications(ctx context.Context) error {
	var n *notifications
	var err error
	switch {
	case p.runs(NotificationController):
		a, options := p.newAlerts(), p.deliveryOptions()
		options.Router, options.Sender = a.router, a.sender
		options.Reporter = &deliveryReporter{p.mgr.GetCache(), p.recorder}
		n = &notifications{Dispatcher: delivery.New(options), address: p.EventsAddr, ready: a.router.Ready}
		err = p.runAlerts(ctx, a, n.Dispatcher)
	case p.forwards():
		n = p.forward()
	default:
		return nil
	}
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot tell the name of this machine: %w", err)
	}
	p.kernel.Events = reconcile.EmitToAll(p.kernel.Events, n.KernelEvents(p.mgr.GetScheme(), host))
	return p.mgr.Add(n)
}

// deliveryOptions returns the options that do not depend on the destination of events.
func (o *Options) deliveryOptions() delivery.Options {
	return delivery.Options{Dir: filepath.Join(o.StoragePath, "events"), Clock: o.clock(),
		RateLimit: cmp.Or(o.RateLimit, -1)}
}

// forward posts all events to the process that has the alerts, and the rate limit.
func (p *process) forward() *notifications {
	to := &delivery.Forwarder{URL: p.EventsAddr, Client: &http.Client{Transport: p.out.transport}}
	options := p.deliveryOptions()
	options.Router, options.Sender, options.RateLimit = to, to, -1
	options.Reporter = delivery.LogReporter(func(message string) { log.Log.WithName("notifications").Info(message) })
	return &notifications{Dispatcher: delivery.New(options)}
}

// notifications runs the dispatcher, and the endpoint for events of other programs if it has an address. Both
// run on the leader only: an event that another replica accepted would wait until that one leads.
type notifications struct {
	*delivery.Dispatcher
	address string                         // of the endpoint; none if empty or 0
	ready   func(ctx context.Context) bool // waits until it is known who wants what; at once if nil
}

// Start implements manager.Runnable.
func (n *notifications) Start(ctx context.Context) error {
	if err := metrics.Registry.Register(n.Dispatcher); err == nil { // else there are two in this process: a test
		defer metrics.Registry.Unregister(n.Dispatcher)
	}
	if n.ready != nil && !n.ready(ctx) {
		return nil // the process ends
	}
	if n.address == "" || n.address == "0" {
		return n.Dispatcher.Start(ctx)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", n.address)
	if err != nil {
		return fmt.Errorf("cannot take events on --events-addr %s: %w", n.address, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- (&ctrlmanager.Server{Name: "events", Listener: listener, Server: delivery.NewServer(n.Dispatcher)}).
			Start(ctx)
	}()
	err = n.Dispatcher.Start(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// forwards tells whether events go to another process, which has the alerts.
func (o *Options) forwards() bool {
	u, err := url.Parse(o.EventsAddr)
	return !o.runs(NotificationController) && err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// checkEvents refuses an --events-addr that this process cannot listen on.
func (o *Options) checkEvents() error {
	switch {
	case o.RateLimit < 0:
		return fmt.Errorf("--rate-limit-interval is %s: choose 0 or more", o.RateLimit)
	case !o.runs(NotificationController) || o.EventsAddr == "" || o.EventsAddr == "0":
		return nil
	case o.runs(SourceController) && o.EventsAddr == o.StorageAddr:
		return fmt.Errorf("--events-addr and --storage-addr are both %s: choose another one, such as %s", o.EventsAddr,
			defaultEventsAddr)
	}
	if _, _, err := net.SplitHostPort(o.EventsAddr); err != nil || strings.Contains(o.EventsAddr, "/") {
		return fmt.Errorf("--events-addr is %s, but this process runs %s, to which others post events: choose an "+
			"address to listen on, such as %s",
			fault.RedactURL(o.EventsAddr), NotificationController, defaultEventsAddr)
	}
	return nil
}

// deliveryReporter records problems with notifications as Kubernetes events of their Alert. No notifications are
// sent about them.
type deliveryReporter struct {
	alerts   client.Reader // of the cache
	recorder reconcile.Recorder
}

// Report implements [delivery.Reporter].
func (t *deliveryReporter) Report(alert, provider types.NamespacedName, reason, message string) {
	a := &v1beta3.Alert{}
	if err := t.alerts.Get(context.Background(), alert, a); err != nil {
		return // it is gone
	}
	t.recorder.AnnotatedEventf(a, nil, nil, corev1.EventTypeWarning, reason, "Notify", "Provider '%s': %s", provider,
		message)
}
