package delivery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

func TestEachProviderGetsWhatIsForIt(t *testing.T) {
	t.Parallel()
	o, dir := newOutside(nil), t.TempDir()
	b, _ := start(t, options(dir, o))
	for i := range 5 {
		post(t, b, about1("x", fmt.Sprint(i), "a b"))
	}
	post(t, b, about1("x", "panic", "a"))
	post(t, b, about1("x", "nobody", ""))
	post(t, b, about1("x", "last", "b"))
	eventually(t, "all are delivered", func() bool { return len(o.of("a")) == 5 && len(o.of("b")) == 6 })
	if want := []string{"0", "1", "2", "3", "4", "last"}; !slices.Equal(o.of("b"), want) {
		t.Errorf("b got %v", o.of("b"))
	}
	eventually(t, "workers without work end, and leave nothing", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, providersDir, "*", "*"))
		return err == nil && len(left) == 0 && len(b.Waiting()) == 0
	})
	post(t, b, about1("x", "again", "a"))
	eventually(t, "they begin again", func() bool { return slices.Contains(o.of("a"), "again") })
}

func TestOneThatIsDownHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	hangs := make(chan struct{})
	o := newOutside(func(ctx context.Context, d Delivery) error {
		switch d.Provider.Name {
		case "down":
			return errors.New("no route to host")
		case "slow":
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
	opts.Grace = time.Minute
	b, stop := start(t, opts)
	const n = 300
	for i := range n {
		post(t, b, about1("x", fmt.Sprint(i), "down slow well"))
	}
	eventually(t, "the healthy one has all", func() bool { return len(o.of("well")) == n })
	if w := b.Waiting(); w[provider("down")] != n || w[provider("slow")] != n {
		t.Errorf("there wait %v", w)
	}
	close(hangs)
	stop()
	slow := len(o.of("slow"))

	// The next process goes on where this one was.
	o.answers = nil
	start(t, options(dir, o))
	eventually(t, "those that waited have all", func() bool { return len(o.of("down")) == n && len(o.of("slow")) == n })
	if slow == 0 || len(o.of("well")) != n {
		t.Errorf("the slow one got %d before, the healthy one %d", slow, len(o.of("well")))
	}
	if got := o.of("slow"); got[0] != "0" || got[n-1] != fmt.Sprint(n-1) {
		t.Errorf("the order is %v", got)
	}
}

// A slow provider has several tries under way, and hears of each object in order.
func TestSeveralAreSentAtOnce(t *testing.T) {
	t.Parallel()
	objects := []string{"a", "b", "c", "d"}
	posted, together := make(chan struct{}), make(chan struct{})
	var under atomic.Int32
	o := newOutside(func(ctx context.Context, d Delivery) error {
		wait := posted
		if d.Event.Message != "first" {
			if wait = together; under.Add(1) == int32(len(objects)) {
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
	b, _ := start(t, options(t.TempDir(), o))
	post(t, b, about1("x", "first", "slow"))
	eventually(t, "the first is under way, alone", func() bool { return o.tried("first") == 1 })
	for i := range 5 {
		for _, object := range objects {
			post(t, b, about1(object, fmt.Sprint(object, i), "slow"))
		}
	}
	eventually(t, "all wait", func() bool { return b.Waiting()[provider("slow")] == 1+5*len(objects) })
	close(posted)
	eventually(t, "all are sent", func() bool { return len(o.of("slow")) == 1+5*len(objects) })
	for _, object := range objects {
		var got []string
		for _, m := range o.of("slow") {
			if strings.HasPrefix(m, object) {
				got = append(got, m)
			}
		}
		if !slices.IsSorted(got) {
			t.Errorf("of %s it hears %q", object, got)
		}
	}
}

// What came through beside a delivery that fails is not sent again with it.
func TestAFailureBesideOthers(t *testing.T) {
	t.Parallel()
	posted := make(chan struct{})
	o := newOutside(func(ctx context.Context, d Delivery) error {
		select {
		case <-posted:
		case <-ctx.Done():
			return ctx.Err()
		}
		if d.Event.Message == "bad" {
			return errors.New("not now")
		}
		return nil
	})
	b, _ := start(t, options(t.TempDir(), o))
	post(t, b, about1("x", "first", "p"))
	for _, m := range []string{"bad", "good", "fine", "well"} {
		post(t, b, about1(m, m, "p"))
	}
	eventually(t, "all wait", func() bool { return b.Waiting()[provider("p")] == 5 })
	close(posted)
	eventually(t, "it is tried over and over", func() bool { return o.tried("bad") > tries && len(o.of("p")) >= 4 })
	got := o.of("p")
	slices.Sort(got)
	if fmt.Sprint(got) != "[fine first good well]" {
		t.Errorf("got %q", got)
	}
	eventually(t, "it alone waits", func() bool { return b.Waiting()[provider("p")] == 1 })
}

func TestWhatNoRetryHelpsIsGivenUp(t *testing.T) {
	t.Parallel()
	o := newOutside(func(_ context.Context, d Delivery) error {
		switch d.Event.Message {
		case "bad":
			return fault.New("Failed", "the provider answered with 401").Final()
		case "panic ":
			panic("a bug")
		}
		return nil
	})
	b, _ := start(t, options(t.TempDir(), o))
	for _, m := range []string{"bad", "panic ", "good"} {
		post(t, b, about1("x", m, "a"))
	}
	eventually(t, "the good one comes", func() bool { return slices.Equal(o.of("a"), []string{"good"}) })
	if o.tried("bad") != 1 || o.tried("panic ") != 1 ||
		!o.tells("a NotificationFailed A notification about Kustomization/apps/x was given up: the provider "+
			"answered with 401") {
		t.Errorf("tried %v, told %v", o.tries, o.told)
	}
}

// One delivery that the provider answers with an error for ever does not hold up those behind it.
func TestOneThatIsNotLikedLetsOthersPass(t *testing.T) {
	t.Parallel()
	o := newOutside(func(_ context.Context, d Delivery) error {
		if strings.HasPrefix(d.Event.Message, "bad") {
			return errors.New("500")
		}
		return nil
	})
	b, _ := start(t, options(t.TempDir(), o))
	for i := range 20 {
		post(t, b, about1("x", fmt.Sprintf("good %d", i), "a"))
		if i%5 == 0 {
			post(t, b, about1("x", fmt.Sprintf("bad %d", i), "a"))
		}
	}
	eventually(t, "the others pass", func() bool { return len(o.of("a")) == 20 })
	eventually(t, "they alone wait, and their owner is told",
		func() bool { return b.Waiting()[provider("a")] == 4 && o.tells("NotificationDelayed") })
}

func TestWhatIsOldIsGivenUpOnceItFails(t *testing.T) {
	t.Parallel()
	o := newOutside(func(_ context.Context, d Delivery) error {
		if d.Event.Message == "bad" {
			return errors.New("500")
		}
		return nil
	})
	opts := options(t.TempDir(), o)
	opts.GiveUp = time.Nanosecond
	b, _ := start(t, opts)
	post(t, b, about1("x", "bad", "a"))
	post(t, b, about1("x", "good", "a"))
	eventually(t, "the good one comes", func() bool { return len(o.of("a")) == 1 })
	if o.tried("bad") != 1 || !o.tells("NotificationFailed") {
		t.Errorf("tried %v, told %v", o.tries, o.told)
	}
}

func TestAWaitThatTheProviderAsksFor(t *testing.T) {
	t.Parallel()
	o := newOutside(func(context.Context, Delivery) error {
		return fault.New("Failed", "429").After(time.Hour)
	})
	opts := options(t.TempDir(), o)
	b, stop := start(t, opts)
	post(t, b, about1("x", "one", "a"))
	post(t, b, about1("x", "two", "a"))
	eventually(t, "it was tried", func() bool { return o.tells("NotificationDelayed") })
	b.Retry(provider("b")) // another one
	b.Retry(provider("a"))
	eventually(t, "it is tried again, as the provider is another one", func() bool { return o.tried("one") == 2 })
	b.Forget(provider("a"))
	eventually(t, "what waits is dropped, and the worker ends", func() bool { return len(b.Waiting()) == 0 })
	stop()
	if o.tried("two") != 0 {
		t.Errorf("tried %v", o.tries)
	}
}

func TestTheOldestGoWhenAProviderIsDownForLong(t *testing.T) {
	t.Parallel()
	o := newOutside(func(context.Context, Delivery) error { return errors.New("down") })
	opts := options(t.TempDir(), o)
	opts.Limits = queue.Limits{Bytes: 20 << 10, Segment: 2 << 10}
	b, stop := start(t, opts)
	for i := range 400 {
		post(t, b, about1("x", fmt.Sprint(i), "a"))
		if i%20 == 0 { // the intake has the same bound
			eventually(t, "it is taken in", func() bool {
				in, err := b.intake()
				return err == nil &&
					in.Waiting() == 0
			})
		}
	}
	eventually(t, "its owner is told", func() bool { return o.tells("NotificationDropped") })
	stop()
	o.answers = nil
	start(t, opts)
	eventually(t, "the newest come", func() bool { return slices.Contains(o.of("a"), "399") })
	if n := len(o.of("a")); n < 20 || n > 100 {
		t.Errorf("%d came", n)
	}
}

func TestTheSameIsToldOnce(t *testing.T) {
	t.Parallel()
	b := New(options(t.TempDir(), newOutside(nil)))
	repeated := func(e event.Event) bool {
		t.Helper()
		err := b.Post(e)
		var r *RepeatedError
		if err != nil && (!errors.As(err, &r) || r.Wait <= 0 || r.Wait > DefaultRateLimit) {
			t.Fatal(err)
		}
		return err != nil
	}
	e := about1("x", "text", "")
	fails := e
	fails.Severity = event.Error
	for i, c := range []struct {
		change func(*event.Event)
		want   bool
	}{
		{func(*event.Event) {}, false},
		{func(*event.Event) {}, true},
		{func(e *event.Event) { e.Severity = event.Error }, false},
		{func(e *event.Event) { e.Message = "other" }, false},
		{func(e *event.Event) { e.InvolvedObject.Name = "y" }, false},
		{func(e *event.Event) { e.InvolvedObject.APIVersion = "kustomize.toolkit.fluxcd.io/v2" }, true},
		{func(e *event.Event) { e.Metadata = map[string]string{event.Revision: "2"} }, false},
		{func(e *event.Event) { e.Metadata = map[string]string{event.Token: "2"} }, false},
		{func(e *event.Event) { e.Metadata = map[string]string{"other": "2"} }, true},
	} {
		changed := e
		c.change(&changed)
		if got := repeated(changed); got != c.want {
			t.Errorf("%d: repeated is %v", i, got)
		}
	}
	well := e
	well.Reason, well.Message = "ReconciliationSucceeded", "all is well"
	if !repeated(fails) || repeated(well) || repeated(fails) {
		t.Error("an error after all was well is not told")
	}

	always := New(Options{Dir: t.TempDir(), RateLimit: -1})
	for range 2 {
		post(t, always, e)
	}
}

func TestADirectoryThatCannotBe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := New(options(file, newOutside(nil)))
	for range 2 { // what is not taken up is no repetition
		if err := b.Post(about1("x", "m", "a")); err == nil || errors.As(err, new(*RepeatedError)) {
			t.Errorf("the error is %v", err)
		}
	}
	if err := b.Start(t.Context()); err == nil {
		t.Error("it starts")
	}
}
