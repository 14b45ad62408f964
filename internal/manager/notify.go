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
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/bus"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// defaultEventsAddr is not the documented one, :9090, which is that of artifacts when one process runs all.
const defaultEventsAddr = ":9293"

// runNotifications lets events of this process, and those that others post to it, come to where --events-addr and the alerts want them.
func runNotifications(mgr ctrlmanager.Manager, k *reconcile.Kernel, out *wayOut, recorder events.AnnotatedEventRecorder, o Options) error {
	options := bus.Options{Dir: filepath.Join(o.StoragePath, "events"), Clock: o.clock(), RateLimit: cmp.Or(o.RateLimit, -1)}
	switch {
	case o.runs(NotificationController):
		options.Router, options.Sender = nobody{}, nobody{}
		options.Teller = &teller{recorder}
	case o.forwards():
		forward := &bus.Forward{URL: o.EventsAddr, Client: &http.Client{Transport: out.transport}}
		options.Router, options.Sender, options.RateLimit = forward, forward, -1 // the other process has the limit
		options.Teller = bus.Silent(func(message string) { log.Log.WithName("notifications").Info(message) })
	default:
		return nil
	}
	b := bus.New(options)
	if err := mgr.Add(&notifications{b, o}); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot tell the name of this machine: %w", err)
	}
	k.Events = reconcile.ToAll(k.Events, b.FromKernel(mgr.GetScheme(), host))
	return nil
}

// notifications are the bus, with the endpoint for others where it has one. Both are with the replica that leads: what another one took up would wait
// until it does.
type notifications struct {
	*bus.Bus
	options Options
}

// Start implements manager.Runnable.
func (n *notifications) Start(ctx context.Context) error {
	if err := metrics.Registry.Register(n.Bus); err == nil { // else there are two in this process: a test
		defer metrics.Registry.Unregister(n.Bus)
	}
	addr := n.options.EventsAddr
	if !n.options.runs(NotificationController) || addr == "" || addr == "0" {
		return n.Bus.Start(ctx)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot take events on --events-addr %s: %w", addr, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- (&ctrlmanager.Server{Name: "events", Listener: listener, Server: bus.NewServer(n.Bus)}).Start(ctx)
	}()
	err = n.Bus.Start(ctx)
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
		return fmt.Errorf("--events-addr and --storage-addr are both %s: choose another one, such as %s", o.EventsAddr, defaultEventsAddr)
	}
	if _, _, err := net.SplitHostPort(o.EventsAddr); err != nil || strings.Contains(o.EventsAddr, "/") {
		return fmt.Errorf("--events-addr is %s, but this process runs %s, to which others post events: choose an address to listen on, such as %s",
			fault.RedactURL(o.EventsAddr), NotificationController, defaultEventsAddr)
	}
	return nil
}

// teller writes what went wrong with notifications into events of their Provider. They are for the cluster only: nobody is notified of notifications.
type teller struct {
	recorder events.AnnotatedEventRecorder
}

// Tell implements [bus.Teller].
func (t *teller) Tell(alert, provider types.NamespacedName, reason, message string) {
	of := &corev1.ObjectReference{APIVersion: "notification.toolkit.fluxcd.io/v1beta3", Kind: "Provider", Namespace: provider.Namespace, Name: provider.Name}
	t.recorder.AnnotatedEventf(of, nil, nil, corev1.EventTypeWarning, reason, "Notify", "Alert %s: %s", alert, message)
}

// nobody has no alerts.
type nobody struct{}

// Route implements [bus.Router].
func (nobody) Route(context.Context, event.Event) []bus.Delivery { return nil }

// Send implements [bus.Sender].
func (nobody) Send(context.Context, bus.Delivery) error { return nil }
