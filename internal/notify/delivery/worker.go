package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxRetryAfter       = time.Hour // upper bound of a wait that a provider requests
	attemptsUntilDefer  = 4         // failed attempts after which a delivery is moved behind the others
	maxParallelAttempts = 8         // each for a different object
)

// worker sends the deliveries of one provider. It is the only reader of the provider's outbox. While attempts
// succeed, several are in flight, so that a provider with a high latency keeps up. After a failure they are
// made one by one.
type worker struct {
	*Dispatcher
	provider  types.NamespacedName
	outbox    *lazyQueue
	available chan struct{} // signals deliveries in the queue
	retryNow  chan struct{} // ends the backoff

	failures    int  // consecutive, of any delivery
	attempts    int  // failed attempts of the oldest delivery
	hasDeferred bool // a delivery was deferred since the last success
}

// queuedDelivery is a delivery as stored in a queue.
type queuedDelivery struct {
	Delivery
	Deferred bool `json:"deferred,omitempty"` // it was moved behind others before
}

// attempt is one attempt to send a delivery, and its result.
type attempt struct {
	queuedDelivery
	record queue.Record
	err    error
}

// add appends a delivery to the queue.
func (w *worker) add(d queuedDelivery, at time.Time) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	stored, err := w.outbox.append(data, at)
	if n := w.outbox.takeDropped(); n > 0 {
		count(w.provider, "dropped", n)
		w.Reporter.Report(d.Alert, w.provider, ReasonDropped,
			fmt.Sprintf("The notification queue is full, oldest notifications dropped: %d. Fix or suspend "+
				"the Provider", n))
	}
	if stored != nil {
		w.flusher.add(stored)
	}
	signal(w.available)
	return err
}

// run sends deliveries until the outbox is empty for IdleTimeout or ctx is done.
func (w *worker) run(ctx, sendCtx context.Context) {
	w.reopen(ctx)
	for ctx.Err() == nil {
		limit := maxParallelAttempts
		if w.failures > 0 {
			limit = 1
		}
		records := w.outbox.next(limit)
		if len(records) == 0 {
			if w.waitForWork(ctx) {
				return
			}
			continue
		}
		attempts := w.selectAttempts(ctx, records)
		var sending guard.WaitGroup
		for _, a := range attempts {
			sending.Go("sending a notification", func() { a.err = w.send(sendCtx, a.Delivery) })
		}
		sending.Wait()
		w.handle(ctx, attempts)
	}
}

// selectAttempts returns the deliveries that may be sent in parallel: the oldest one of each object, since the
// events of an object are sent in order.
func (w *worker) selectAttempts(ctx context.Context, records []queue.Record) (attempts []*attempt) {
	objects := map[string]bool{}
	for _, r := range records {
		a := &attempt{record: r}
		if err := json.Unmarshal(r.Data, &a.queuedDelivery); err != nil {
			count(w.provider, "dropped", 1)
			w.acknowledge(ctx, w.outbox.opened(), r)
			continue
		}
		if o := objectOf(a.Event); !objects[o] {
			objects[o] = true
			attempts = append(attempts, a)
		}
	}
	return attempts
}

// waitForWork waits for a delivery. It reports whether the worker must end: ctx is done, or no delivery came
// for IdleTimeout and the worker and its queue are removed.
func (w *worker) waitForWork(ctx context.Context) (ended bool) {
	idle := w.Clock.NewTimer(w.IdleTimeout)
	defer idle.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-w.available:
		return false
	case <-idle.C():
	}
	isComplete := w.reopen(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isComplete || w.outbox.len() > 0 {
		return false
	}
	delete(w.workers, w.provider)
	if err := w.outbox.remove(); err != nil {
		log.FromContext(ctx).Error(err, "cannot remove an empty notification queue", "provider", w.provider.String())
	}
	return true
}

// reopen opens the queue of an earlier process, and reports whether it can be opened if there is one.
func (w *worker) reopen(ctx context.Context) bool {
	err := w.outbox.reopen()
	if err != nil {
		log.FromContext(ctx).Error(err, "cannot open a queue of a Provider, its notifications wait. Check the disk of "+
			"--storage-path", "provider", w.provider.String())
	}
	return err == nil
}

// send makes one attempt. A panic of the sender is a terminal failure of this delivery.
func (w *worker) send(ctx context.Context, d Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, w.SendTimeout)
	defer cancel()
	start := w.Clock.Now()
	err := guard.Do("sending a notification", func() error { return w.Sender.Send(ctx, d) })
	if guard.IsPanic(err) {
		err = fault.New(ReasonFailed, "internal error while sending a notification").WithHint(guard.Hint).Final()
	}
	attemptDuration.WithLabelValues(result(err)).Observe(w.Clock.Since(start).Seconds())
	return err
}

// handle processes the results of attempts. If several must be retried, the oldest one is next, alone.
func (w *worker) handle(ctx context.Context, attempts []*attempt) {
	var failed *attempt
	for _, a := range attempts {
		f := fault.As(a.err)
		switch {
		case a.err == nil:
			count(w.provider, "delivered", 1)
			w.failures, w.hasDeferred = 0, false
			w.done(ctx, a)
		case ctx.Err() != nil: // the process ends; the next one retries
		case f != nil && f.Terminal:
			w.fail(ctx, a)
		case failed == nil:
			failed = a
		}
	}
	if failed != nil {
		w.retry(ctx, failed)
	}
}

// retry waits for the backoff after a failed attempt. A delivery older than MaxAge is not retried.
func (w *worker) retry(ctx context.Context, a *attempt) {
	w.failures++
	if w.Clock.Since(a.record.Time) > w.MaxAge {
		w.fail(ctx, a)
	} else {
		w.attempts++
		if w.failures == 1 {
			w.Reporter.Report(a.Alert, w.provider, ReasonDelayed,
				fmt.Sprintf("Notification about %s is delayed: %s", a.subject(), a.err))
		}
		if (a.Deferred || w.attempts >= attemptsUntilDefer) && !w.hasDeferred && w.outbox.len() > 1 {
			w.moveToEnd(ctx, a)
		}
	}
	w.backOff(ctx, fault.As(a.err)) // also after w.fail: the provider may still be down
}

// fail reports a delivery that is not retried and removes it.
func (w *worker) fail(ctx context.Context, a *attempt) {
	count(w.provider, "failed", 1)
	w.Reporter.Report(a.Alert, w.provider, ReasonFailed,
		fmt.Sprintf("Notification about %s failed and will not be retried: %s", a.subject(), a.err))
	w.done(ctx, a)
}

func (w *worker) done(ctx context.Context, a *attempt) {
	w.acknowledge(ctx, w.outbox.opened(), a.record) // only this goroutine removes the queue
	w.attempts = 0
}

// moveToEnd defers a delivery so that the next one is tried: if that succeeds, the provider rejects only the
// deferred one. Only one is deferred until a success, so that a provider that is down gets all others in order.
func (w *worker) moveToEnd(ctx context.Context, a *attempt) {
	a.Deferred = true
	if err := w.add(a.queuedDelivery, a.record.Time); err != nil {
		return // it keeps its position
	}
	w.done(ctx, a)
	w.hasDeferred = true
}

// backOff waits before the next attempt, for as long as the provider requests or else exponentially.
func (w *worker) backOff(ctx context.Context, f *fault.Fault) {
	wait := w.Backoff.Min
	for i := 1; i < w.failures && wait < w.Backoff.Max; i++ {
		wait *= 2
	}
	wait = min(wait, w.Backoff.Max)
	wait += time.Duration(rand.Int64N(int64(wait)/10 + 1)) // so that providers of one host do not retry together
	if f != nil && f.RetryAfter > 0 {
		wait = min(f.RetryAfter, maxRetryAfter)
	}
	timer := w.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-w.retryNow:
	case <-timer.C():
	}
}
