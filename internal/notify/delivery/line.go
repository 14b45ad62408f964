package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

const (
	longestWait = time.Hour // that a provider may ask for
	tries       = 4         // after which a delivery lets another one pass
	sentAtOnce  = 8         // tries that are made at the same time, each for another object
)

// line is the queue of one provider and its worker, the only one that takes from it. As long as the provider
// takes what it is sent, several deliveries are under way at once, so that one that is slow is not the slower
// for it; after a failure one follows the other.
type line struct {
	*Bus
	provider types.NamespacedName
	queue    *queue.Queue
	wake     chan struct{} // there is work
	again    chan struct{} // a pause is over

	failures int  // in a row, of whatever delivery
	tries    int  // of the delivery that is next
	passed   bool // a delivery was put aside since the last one that came through
}

// parcel is a delivery in a queue.
type parcel struct {
	Delivery
	Aside bool `json:"aside,omitempty"` // it let others pass before
}

// add puts a delivery at the end.
func (l *line) add(p parcel, at time.Time) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	err = l.queue.Append(data, at)
	if n := l.queue.Lost(); n > 0 {
		count(l.provider, "dropped", n)
		l.Teller.Tell(p.Alert, l.provider, ReasonDropped,
			fmt.Sprintf("The oldest notifications that waited for the provider were dropped, as there are more than "+
				"are kept: %d. Correct or suspend the provider", n))
	}
	l.behind.add(l.queue)
	signal(l.wake)
	return err
}

// try is a delivery that is under way, and what became of it.
type try struct {
	parcel
	record queue.Record
	err    error
}

// work delivers until there is nothing for a while, or ctx ends.
func (l *line) work(ctx, sends context.Context) {
	for ctx.Err() == nil {
		most := sentAtOnce
		if l.failures > 0 {
			most = 1
		}
		records := l.queue.NextFew(most)
		if len(records) == 0 {
			if l.rest(ctx) {
				return
			}
			continue
		}
		under := l.pick(ctx, records)
		var all sync.WaitGroup
		for _, t := range under {
			all.Go(func() { t.err = l.send(sends, t.Delivery) })
		}
		all.Wait()
		l.handle(ctx, under)
	}
}

// pick returns the deliveries that can be made at once: the oldest of each object, whose events come in their order.
func (l *line) pick(ctx context.Context, records []queue.Record) (under []*try) {
	objects := map[string]bool{}
	for _, r := range records {
		t := &try{record: r}
		if err := json.Unmarshal(r.Data, &t.parcel); err != nil {
			count(l.provider, "dropped", 1)
			l.acknowledge(ctx, l.queue, r)
			continue
		}
		if o := objectOf(t.Event); !objects[o] {
			objects[o] = true
			under = append(under, t)
		}
	}
	return under
}

// rest waits for work; it tells that the line ended, as there was none for long.
func (l *line) rest(ctx context.Context) bool {
	idle := l.Clock.NewTimer(l.Idle)
	defer idle.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-l.wake:
		return false
	case <-idle.C():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.Waiting() > 0 {
		return false
	}
	delete(l.lines, l.provider)
	if err := l.queue.Remove(); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove an empty queue", "provider", l.provider.String())
	}
	return true
}

// send makes one try. A panic of what speaks to a provider is a failure of this delivery.
func (l *line) send(ctx context.Context, d Delivery) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.SendTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "the provider panicked", "stack",
				string(debug.Stack()))
			err = fault.New(ReasonFailed, "internal error while sending a notification").
				WithHint("This is a bug in Sluice: please report it with the controller's log").Final()
		}
	}()
	start := l.Clock.Now()
	err = l.Sender.Send(ctx, d)
	took.WithLabelValues(result(err)).Observe(l.Clock.Since(start).Seconds())
	return err
}

// handle deals with the outcomes of tries. Of those that are to be made again it minds the oldest: it is the
// next one, alone.
func (l *line) handle(ctx context.Context, under []*try) {
	var failed *try
	for _, t := range under {
		f := fault.As(t.err)
		switch {
		case t.err == nil:
			count(l.provider, "delivered", 1)
			l.failures, l.passed = 0, false
			l.done(ctx, t.record)
		case ctx.Err() != nil: // the process ends; the next one tries again
		case f != nil && f.Terminal:
			l.giveUp(ctx, t)
		case failed == nil:
			failed = t
		}
	}
	if failed != nil {
		l.retry(ctx, failed)
	}
}

// retry waits until a try that failed can be made again, unless it is too late for that.
func (l *line) retry(ctx context.Context, t *try) {
	l.failures++
	if l.Clock.Since(t.record.Time) > l.GiveUp {
		l.giveUp(ctx, t)
	} else {
		l.tries++
		if l.failures == 1 {
			l.Teller.Tell(t.Alert, l.provider, ReasonDelayed,
				fmt.Sprintf("A notification about %s failed, and is tried again: %s", about(t.Delivery), t.err))
		}
		if (t.Aside || l.tries >= tries) && !l.passed && l.queue.Waiting() > 1 {
			l.putAside(ctx, t)
		}
	}
	l.pause(ctx, fault.As(t.err)) // even if it was given up: the next one is as old, and the provider as far
}

func (l *line) giveUp(ctx context.Context, t *try) {
	count(l.provider, "failed", 1)
	l.Teller.Tell(t.Alert, l.provider, ReasonFailed,
		fmt.Sprintf("A notification about %s was given up: %s", about(t.Delivery), t.err))
	l.done(ctx, t.record)
}

func (l *line) done(ctx context.Context, r queue.Record) {
	l.acknowledge(ctx, l.queue, r)
	l.tries = 0
}

// putAside lets the next delivery pass: if it comes through, it is this one that the provider does not like.
// Only one is put aside until then, so that a provider which is down gets all others in their order.
func (l *line) putAside(ctx context.Context, t *try) {
	t.Aside = true
	if err := l.add(t.parcel, t.record.Time); err != nil {
		return // it stays where it is
	}
	l.done(ctx, t.record)
	l.passed = true
}

// pause waits before the next try.
func (l *line) pause(ctx context.Context, f *fault.Fault) {
	wait := l.Backoff.Min
	for i := 1; i < l.failures && wait < l.Backoff.Max; i++ {
		wait *= 2
	}
	wait = min(wait, l.Backoff.Max)
	wait += time.Duration(rand.Int64N(int64(wait)/10 + 1)) // replicas and providers of one host drift apart
	if f != nil && f.RetryAfter > 0 {
		wait = min(f.RetryAfter, longestWait)
	}
	timer := l.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.again:
	case <-timer.C():
	}
}

func about(d Delivery) string {
	o := d.Event.InvolvedObject
	return fmt.Sprintf("%s/%s/%s", o.Kind, o.Namespace, o.Name)
}
