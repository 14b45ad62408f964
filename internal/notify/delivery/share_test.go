package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// TestNamespacesDoNotPushOutOthers has a provider that is down, to which the events of two namespaces go.
func TestNamespacesDoNotPushOutOthers(t *testing.T) {
	down := errors.New("down")
	o := newFakeProviders(func(context.Context, Delivery) error { return down })
	opts := options(t.TempDir(), o)
	opts.Limits = queue.Limits{Bytes: 40 << 10, Segment: 2 << 10}
	opts.RateLimit = -1
	d, stop := start(t, opts)
	victim := newEvent("victim", "of the victim", "p")
	victim.InvolvedObject.Namespace = "victim"
	post(t, d, victim)
	long := strings.Repeat("x", 500)
	for i := range 200 {
		err := d.Post(newEvent(fmt.Sprint("hostile", i), fmt.Sprint(i, long), "p"))
		if err != nil && !errors.Is(err, queue.ErrShare) {
			t.Fatal(err)
		}
	}
	eventually(t, "the drop is reported", func() bool { return o.reported("namespace 'apps' use up its share") })
	stop()
	o.respond = nil
	start(t, opts)
	eventually(t, "the event of the other namespace is delivered", func() bool {
		return slices.Contains(o.received("p"), "of the victim")
	})
}

// TestProvidersOfANamespaceLeaveDiskToOthers has many providers of a namespace that are down, and one of another.
func TestProvidersOfANamespaceLeaveDiskToOthers(t *testing.T) {
	o := newFakeProviders(func(context.Context, Delivery) error { return errors.New("down") })
	opts := options(t.TempDir(), o)
	opts.Limits = queue.Limits{Bytes: 8 << 10, Segment: 2 << 10}
	opts.RateLimit = -1
	opts.Backoff = Backoff{Min: time.Hour, Max: time.Hour} // workers write nothing meanwhile
	d := New(opts)
	ctx, cancel := context.WithCancel(t.Context())
	defer d.running.Wait()
	defer cancel()
	long, refused := strings.Repeat("x", 1000), 0
	send := func(namespace, name string) error {
		return d.store(ctx, ctx, Delivery{Event: newEvent(name, long, "p"),
			Provider: types.NamespacedName{Namespace: namespace, Name: name}}, d.Clock.Now(), false)
	}
	for provider := range 40 {
		for range 5 {
			if err := send("hostile", fmt.Sprint("p", provider)); errors.Is(err, errNoDisk) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	d.mu.Lock()
	used := int64(0)
	for _, w := range d.workers {
		used += w.outbox.size()
	}
	d.mu.Unlock()
	if most := totalQueues*opts.Limits.Bytes/2 + 2<<10; refused == 0 || used > most {
		t.Errorf("%d deliveries were refused, and %d bytes are used, more than %d", refused, used, most)
	}
	if err := send("victim", "p"); err != nil {
		t.Errorf("a delivery of another namespace: %v", err)
	}
}
