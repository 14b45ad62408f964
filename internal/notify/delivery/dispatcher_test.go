package delivery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestEachProviderGetsItsEvents(t *testing.T) {
	t.Parallel()
	o, dir := newFakeProviders(nil), t.TempDir()
	d, _ := start(t, options(dir, o))
	for i := range 5 {
		post(t, d, newEvent("x", fmt.Sprint(i), "a b"))
	}
	post(t, d, newEvent("x", "panic", "a"))
	post(t, d, newEvent("x", "unrouted", ""))
	post(t, d, newEvent("x", "last", "b"))
	eventually(t, "all events are delivered",
		func() bool { return len(o.received("a")) == 5 && len(o.received("b")) == 6 })
	if want := []string{"0", "1", "2", "3", "4", "last"}; !slices.Equal(o.received("b"), want) {
		t.Errorf("provider b got %v", o.received("b"))
	}
	eventually(t, "idle workers end and remove their queues", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, providersDir, "*", "*"))
		return err == nil && len(left) == 0 && len(d.Pending()) == 0
	})
	post(t, d, newEvent("x", "again", "a"))
	eventually(t, "a new worker starts", func() bool { return slices.Contains(o.received("a"), "again") })
}

func TestProvidersDoNotDelayEachOther(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	var hanging atomic.Int32
	o := newFakeProviders(func(ctx context.Context, delivery Delivery) error {
		switch delivery.Provider.Name {
		case "down":
			return errors.New("no route to host")
		case "slow":
			hanging.Add(1)
			select {
			case <-hangs:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	dir := t.TempDir()
	opts := options(dir, o)
	opts.ShutdownGrace = time.Minute
	d, stop := start(t, opts)
	const n = 300
	for i := range n {
		post(t, d, newEvent("x", fmt.Sprint(i), "down slow well"))
	}
	eventually(t, "the healthy provider has all events", func() bool { return len(o.received("well")) == n })
	if p := d.Pending(); p[provider("down")] != n || p[provider("slow")] != n {
		t.Errorf("Pending() = %v", p)
	}
	eventually(t, "the slow provider has an attempt in flight", func() bool { return hanging.Load() > 0 })
	close(hangs)
	stop()
	slow := len(o.received("slow"))

	// The next process continues.
	o.respond = nil
	start(t, options(dir, o))
	eventually(t, "the other providers have all events",
		func() bool { return len(o.received("down")) == n && len(o.received("slow")) == n })
	if slow == 0 || len(o.received("well")) != n {
		t.Errorf("before the restart the slow provider got %d events, the healthy one %d", slow,
			len(o.received("well")))
	}
	if got := o.received("slow"); got[0] != "0" || got[n-1] != fmt.Sprint(n-1) {
		t.Errorf("unexpected order %v", got)
	}
}

// TestParallelAttempts checks that several attempts are in flight, and that the events of an object stay in order.
func TestParallelAttempts(t *testing.T) {
	t.Parallel()
	objects := []string{"a", "b", "c", "d"}
	posted, together := make(chan struct{}), make(chan struct{})
	var inFlight atomic.Int32
	o := newFakeProviders(func(ctx context.Context, delivery Delivery) error {
		wait := posted
		if delivery.Event.Message != "first" {
			if wait = together; inFlight.Add(1) == int32(len(objects)) {
				close(together)
			}
		}
		select {
		case <-wait:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	d, _ := start(t, options(t.TempDir(), o))
	post(t, d, newEvent("x", "first", "slow"))
	eventually(t, "the first attempt is in flight", func() bool { return o.attempts("first") == 1 })
	for i := range 5 {
		for _, object := range objects {
			post(t, d, newEvent(object, fmt.Sprint(object, i), "slow"))
		}
	}
	eventually(t, "all events are pending", func() bool { return d.Pending()[provider("slow")] == 1+5*len(objects) })
	close(posted)
	eventually(t, "all events are sent", func() bool { return len(o.received("slow")) == 1+5*len(objects) })
	for _, object := range objects {
		var got []string
		for _, m := range o.received("slow") {
			if strings.HasPrefix(m, object) {
				got = append(got, m)
			}
		}
		if !slices.IsSorted(got) {
			t.Errorf("events of %s are sent as %q", object, got)
		}
	}
}

// TestFailureInParallel checks that deliveries sent in parallel with a failed one are not sent again.
func TestFailureInParallel(t *testing.T) {
	t.Parallel()
	posted := make(chan struct{})
	o := newFakeProviders(func(ctx context.Context, delivery Delivery) error {
		select {
		case <-posted:
		case <-ctx.Done():
			return ctx.Err()
		}
		if delivery.Event.Message == "bad" {
			return errors.New("unavailable")
		}
		return nil
	})
	d, _ := start(t, options(t.TempDir(), o))
	post(t, d, newEvent("x", "first", "p"))
	for _, m := range []string{"bad", "good", "fine", "well"} {
		post(t, d, newEvent(m, m, "p"))
	}
	eventually(t, "all events are pending", func() bool { return d.Pending()[provider("p")] == 5 })
	close(posted)
	eventually(t, "the failed delivery is retried",
		func() bool { return o.attempts("bad") > attemptsUntilDefer && len(o.received("p")) >= 4 })
	got := o.received("p")
	slices.Sort(got)
	if fmt.Sprint(got) != "[fine first good well]" {
		t.Errorf("got %q", got)
	}
	eventually(t, "only the failed delivery is pending", func() bool { return d.Pending()[provider("p")] == 1 })
}

func TestTerminalFailureIsNotRetried(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(func(_ context.Context, delivery Delivery) error {
		switch delivery.Event.Message {
		case "bad":
			return fault.New("Failed", "the provider returned 401").Final()
		case "panic ":
			panic("a bug")
		}
		return nil
	})
	d, _ := start(t, options(t.TempDir(), o))
	for _, m := range []string{"bad", "panic ", "good"} {
		post(t, d, newEvent("x", m, "a"))
	}
	eventually(t, "the good event is delivered", func() bool { return slices.Equal(o.received("a"), []string{"good"}) })
	if o.attempts("bad") != 1 || o.attempts("panic ") != 1 ||
		!o.reported("a NotificationFailed Notification about Kustomization/apps/x failed and will not be retried: "+
			"the provider returned 401") {
		t.Errorf("attempts %v, reports %v", o.attempted, o.reports)
	}
}

// TestFailingDeliveryIsDeferred checks that deliveries that always fail do not block those behind them.
func TestFailingDeliveryIsDeferred(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(func(_ context.Context, delivery Delivery) error {
		if strings.HasPrefix(delivery.Event.Message, "bad") {
			return errors.New("500")
		}
		return nil
	})
	d, _ := start(t, options(t.TempDir(), o))
	for i := range 20 {
		post(t, d, newEvent("x", fmt.Sprintf("good %d", i), "a"))
		if i%5 == 0 {
			post(t, d, newEvent("x", fmt.Sprintf("bad %d", i), "a"))
		}
	}
	eventually(t, "all other events are delivered", func() bool { return len(o.received("a")) == 20 })
	eventually(t, "only the failing deliveries are pending, and a report was made",
		func() bool { return d.Pending()[provider("a")] == 4 && o.reported("NotificationDelayed") })
}

func TestOldDeliveryIsNotRetried(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(func(_ context.Context, delivery Delivery) error {
		if delivery.Event.Message == "bad" {
			return errors.New("500")
		}
		return nil
	})
	opts := options(t.TempDir(), o)
	opts.MaxAge = time.Nanosecond
	d, _ := start(t, opts)
	post(t, d, newEvent("x", "bad", "a"))
	post(t, d, newEvent("x", "good", "a"))
	eventually(t, "the good event is delivered", func() bool { return len(o.received("a")) == 1 })
	if o.attempts("bad") != 1 || !o.reported("NotificationFailed") {
		t.Errorf("attempts %v, reports %v", o.attempted, o.reports)
	}
}

func TestRetryAfterAndForget(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(func(context.Context, Delivery) error {
		return fault.New("Failed", "429").After(time.Hour)
	})
	opts := options(t.TempDir(), o)
	d, stop := start(t, opts)
	post(t, d, newEvent("x", "one", "a"))
	post(t, d, newEvent("x", "two", "a"))
	eventually(t, "one attempt was made", func() bool { return o.reported("NotificationDelayed") })
	d.Retry(provider("b")) // no effect on provider a
	d.Retry(provider("a"))
	eventually(t, "Retry ends the wait", func() bool { return o.attempts("one") == 2 })
	d.Forget(provider("a"))
	eventually(t, "Forget drops the deliveries, and the worker ends", func() bool { return len(d.Pending()) == 0 })
	stop()
	if o.attempts("two") != 0 {
		t.Errorf("attempts %v", o.attempted)
	}
}

func TestFullProviderQueueDropsOldestEvents(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(func(context.Context, Delivery) error { return errors.New("down") })
	opts := options(t.TempDir(), o)
	opts.Limits = queue.Limits{Bytes: 20 << 10, Segment: 2 << 10}
	d, stop := start(t, opts)
	for i := range 400 {
		post(t, d, newEvent("x", fmt.Sprint(i), "a"))
		if i%20 == 0 { // the intake has the same limit
			eventually(t, "the intake is empty", func() bool {
				intake, err := d.own.queue.open()
				return err == nil && intake.Len() == 0
			})
		}
	}
	eventually(t, "the drop is reported", func() bool { return o.reported("NotificationDropped") })
	stop()
	o.respond = nil
	start(t, opts)
	eventually(t, "the newest events are delivered", func() bool { return slices.Contains(o.received("a"), "399") })
	if n := len(o.received("a")); n < 20 || n > 100 {
		t.Errorf("%d events were delivered, want 20 to 100", n)
	}
}

func TestDuplicateEventsAreSuppressed(t *testing.T) {
	t.Parallel()
	d := New(options(t.TempDir(), newFakeProviders(nil)))
	isDuplicate := func(e event.Event) bool {
		t.Helper()
		err := d.Post(e)
		var r *DuplicateError
		if err != nil && (!errors.As(err, &r) || r.Wait <= 0 || r.Wait > DefaultRateLimit) {
			t.Fatal(err)
		}
		return err != nil
	}
	e := newEvent("x", "text", "")
	fails := e
	fails.Severity = event.Error
	for _, c := range []struct {
		name   string
		change func(*event.Event)
		want   bool
	}{
		{name: "first event", change: func(*event.Event) {}},
		{name: "same event", change: func(*event.Event) {}, want: true},
		{name: "other severity", change: func(e *event.Event) { e.Severity = event.Error }},
		{name: "other message", change: func(e *event.Event) { e.Message = "other" }},
		{name: "other object", change: func(e *event.Event) { e.InvolvedObject.Name = "y" }},
		{name: "other API version", want: true,
			change: func(e *event.Event) { e.InvolvedObject.APIVersion = "kustomize.toolkit.fluxcd.io/v2" }},
		{name: "other revision",
			change: func(e *event.Event) { e.Metadata = map[string]string{event.Revision: "2"} }},
		{name: "other token",
			change: func(e *event.Event) { e.Metadata = map[string]string{event.Token: "2"} }},
		{name: "other metadata", want: true,
			change: func(e *event.Event) { e.Metadata = map[string]string{"other": "2"} }},
	} {
		changed := e
		c.change(&changed)
		if got := isDuplicate(changed); got != c.want {
			t.Errorf("%s: duplicate = %v", c.name, got)
		}
	}
	well := e
	well.Reason, well.Message = "ReconciliationSucceeded", "ready"
	if !isDuplicate(fails) || isDuplicate(well) || isDuplicate(fails) {
		t.Error("an error after a success is suppressed")
	}

	always := New(Options{Dir: t.TempDir(), RateLimit: -1})
	for range 2 {
		post(t, always, e)
	}
}
