package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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
