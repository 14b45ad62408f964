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

// router sends each event to the providers that its metadata names.
type router struct{}

func (router) Route(_ context.Context, e event.Event) (all []Delivery) {
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

// outside is where events are sent to.
type outside struct {
	mu      sync.Mutex
	got     map[string][]string                         // messages by provider, in their order
	tries   map[string]int                              // by message
	answers func(ctx context.Context, d Delivery) error // before it is got
	told    []string
	brief   bool // keeps of messages the first word only
}

func newOutside(answers func(context.Context, Delivery) error) *outside {
	return &outside{got: map[string][]string{}, tries: map[string]int{}, answers: answers}
}

func (o *outside) Send(ctx context.Context, d Delivery) error {
	message := d.Event.Message
	if o.brief {
		message = strings.Clone(strings.Fields(message)[0])
	}
	o.mu.Lock()
	o.tries[message]++
	o.mu.Unlock()
	if o.answers != nil {
		if err := o.answers(ctx, d); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got[d.Provider.Name] = append(o.got[d.Provider.Name], message)
	return nil
}

func (o *outside) Tell(_, provider types.NamespacedName, reason, message string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, provider.Name+" "+reason+" "+message)
}

func (o *outside) of(provider string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.got[provider])
}

func (o *outside) tried(message string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tries[message]
}

func (o *outside) tells(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.told, func(s string) bool { return strings.Contains(s, text) })
}

func about1(object, message, to string) event.Event {
	return event.Event{
		InvolvedObject: corev1.ObjectReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization",
			Namespace: "apps", Name: object},
		Severity: event.Info, Reason: "Progressing", Message: message, Metadata: map[string]string{"to": to},
	}
}

func options(dir string, o *outside) Options {
	return Options{
		Dir: dir, Router: router{}, Sender: o, Teller: o,
		Backoff: Backoff{time.Millisecond, 4 * time.Millisecond}, Idle: 20 * time.Millisecond,
		SyncEvery: time.Millisecond, Grace: time.Millisecond,
	}
}

// start runs a bus until stop is called, or the test ends.
func start(t *testing.T, o Options) (b *Bus, stop func()) {
	t.Helper()
	b = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return b, stop
}

func post(t *testing.T, b *Bus, e event.Event) {
	t.Helper()
	if err := b.Post(e); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what must come to be.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatalf("it never comes to be that %s", what)
		case <-tick.C:
		}
	}
}
