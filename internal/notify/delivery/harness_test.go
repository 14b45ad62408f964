package delivery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// metadataRouter routes each event to the providers listed in its metadata key "to".
type metadataRouter struct{}

func (metadataRouter) Route(_ context.Context, e event.Event) (all []Delivery) {
	if e.Message == "panic" {
		panic("no route")
	}
	for _, name := range strings.Fields(e.Metadata["to"]) {
		all = append(all, Delivery{Alert: provider("alert"), Provider: provider(name), Event: e})
	}
	return all
}

func provider(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// fakeProviders is a Sender that records what each provider receives, and a Reporter that records reports.
type fakeProviders struct {
	mu            sync.Mutex
	got           map[string][]string                                // messages by provider, in order
	attempted     map[string]int                                     // attempts by message
	respond       func(ctx context.Context, delivery Delivery) error // nil: always succeeds
	reports       []string
	firstWordOnly bool // record only the first word of messages
}

func newFakeProviders(respond func(context.Context, Delivery) error) *fakeProviders {
	return &fakeProviders{got: map[string][]string{}, attempted: map[string]int{}, respond: respond}
}

func (o *fakeProviders) Send(ctx context.Context, delivery Delivery) error {
	message := delivery.Event.Message
	if o.firstWordOnly {
		message = strings.Clone(strings.Fields(message)[0])
	}
	o.mu.Lock()
	o.attempted[message]++
	o.mu.Unlock()
	if o.respond != nil {
		if err := o.respond(ctx, delivery); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got[delivery.Provider.Name] = append(o.got[delivery.Provider.Name], message)
	return nil
}

func (o *fakeProviders) Report(_, provider types.NamespacedName, reason, message string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports = append(o.reports, provider.Name+" "+reason+" "+message)
}

func (o *fakeProviders) received(provider string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got[provider])
}

func (o *fakeProviders) attempts(message string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.attempted[message]
}

func (o *fakeProviders) reported(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.reports, func(s string) bool { return strings.Contains(s, text) })
}

func newEvent(object, message, to string) event.Event {
	return event.Event{
		InvolvedObject: corev1.ObjectReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization",
			Namespace: "apps", Name: object},
		Severity: event.Info, Reason: "Progressing", Message: message, Metadata: map[string]string{"to": to},
	}
}

func options(dir string, o *fakeProviders) Options {
	return Options{
		Dir: dir, Router: metadataRouter{}, Sender: o, Reporter: o,
		Backoff: Backoff{Min: time.Millisecond, Max: 4 * time.Millisecond}, IdleTimeout: 20 * time.Millisecond,
		FlushInterval: time.Millisecond, ShutdownGrace: time.Millisecond,
	}
}

// start creates a dispatcher, and runs it until stop is called or the test ends.
func start(t *testing.T, o Options) (d *Dispatcher, stop func()) {
	t.Helper()
	d = New(o)
	return d, run(t, d)
}

// run runs a dispatcher until stop is called or the test ends.
func run(t *testing.T, d *Dispatcher) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func post(t *testing.T, d *Dispatcher, e event.Event) {
	t.Helper()
	if err := d.Post(e); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("timeout: %s", condition)
		case <-tick.C:
		}
	}
}
