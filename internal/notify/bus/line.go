package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

const (
	longestWait = time.Hour // that a provider may ask for
	tries       = 4         // after which a delivery lets another one pass
)

// line is the queue of one provider and its worker, the only one that takes from it.
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
			fmt.Sprintf("The oldest notifications that waited for the provider were dropped, as there are more than are kept: %d. Correct or suspend the provider", n))
	}
	l.behind.add(l.queue)
	signal(l.wake)
	return err
}

// work delivers one after the other until there is nothing for a while, or ctx ends.
func (l *line) work(ctx, sends context.Context) {
	for ctx.Err() == nil {
		r, ok := l.queue.Next()
		if !ok {
			if l.rest(ctx) {
				return
			}
			continue
		}
		var p parcel
		if err := json.Unmarshal(r.Data, &p); err != nil {
			count(l.provider, "dropped", 1)
			l.acknowledge(ctx, l.queue, r)
			continue
		}
		l.handle(ctx, r, p, l.send(sends, p.Delivery))
	}
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
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "the provider panicked", "stack", string(debug.Stack()))
			err = fault.New(ReasonFailed, "internal error while sending a notification").
				WithHint("This is a bug in Sluice: please report it with the controller's log").Final()
		}
	}()
	start := l.Clock.Now()
	err = l.Sender.Send(ctx, d)
	took.WithLabelValues(result(err)).Observe(l.Clock.Since(start).Seconds())
	return err
}

// handle deals with the outcome of a try.
func (l *line) handle(ctx context.Context, r queue.Record, p parcel, err error) {
	f := fault.As(err)
	switch {
	case err == nil:
		count(l.provider, "delivered", 1)
		l.failures, l.passed = 0, false
		l.done(ctx, r)
	case ctx.Err() != nil: // the process ends; the next one tries again
	case f != nil && f.Terminal:
		l.giveUp(ctx, r, p, err)
	case l.Clock.Since(r.Time) > l.GiveUp:
		l.giveUp(ctx, r, p, err)
		l.failures++
		l.pause(ctx, f) // the next one is as old, and the provider as far
	default:
		l.failures++
		l.tries++
		if l.failures == 1 {
			l.Teller.Tell(p.Alert, l.provider, ReasonDelayed, fmt.Sprintf("A notification about %s failed, and is tried again: %s", about(p.Delivery), err))
		}
		if (p.Aside || l.tries >= tries) && !l.passed && l.queue.Waiting() > 1 {
			l.putAside(ctx, r, p)
		}
		l.pause(ctx, f)
	}
}

func (l *line) giveUp(ctx context.Context, r queue.Record, p parcel, err error) {
	count(l.provider, "failed", 1)
	l.Teller.Tell(p.Alert, l.provider, ReasonFailed, fmt.Sprintf("A notification about %s was given up: %s", about(p.Delivery), err))
	l.done(ctx, r)
}

func (l *line) done(ctx context.Context, r queue.Record) {
	l.acknowledge(ctx, l.queue, r)
	l.tries = 0
}

// putAside lets the next delivery pass: if it comes through, it is this one that the provider does not like. Only one is put aside until then, so
// that a provider which is down gets all others in their order.
func (l *line) putAside(ctx context.Context, r queue.Record, p parcel) {
	p.Aside = true
	if err := l.add(p, r.Time); err != nil {
		return // it stays where it is
	}
	l.done(ctx, r)
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
