package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// Dispatcher accepts events and delivers them.
type Dispatcher struct {
	Options
	own, posted *intake
	available   chan struct{} // signals events in an intake
	holding     chan struct{} // signals events that wait in memory
	flusher     *flusher

	mu      sync.Mutex
	workers map[types.NamespacedName]*worker // by provider; only providers with deliveries have one
	usage   usage
	running guard.WaitGroup // workers
}

// New returns a dispatcher. It opens no file before the first event or [Dispatcher.Start].
func New(o Options) *Dispatcher {
	o.setDefaults()
	return &Dispatcher{
		Options: o, own: newIntake(o, "intake", maxHeld), posted: newIntake(o, "posted", 0),
		available: make(chan struct{}, 1), holding: make(chan struct{}, 1),
		workers: map[types.NamespacedName]*worker{}, flusher: newFlusher(),
	}
}

// DuplicateError is returned for an event that repeats a recent one.
type DuplicateError struct {
	Wait time.Duration // after which the event is accepted again
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate event, suppressed; next accepted in %s", e.Wait.Round(time.Second))
}

// Post accepts an event of this process: it is stored when the error is nil, or waits in memory for the disk. The error
// is a [*DuplicateError], or storing failed and too many events wait.
func (d *Dispatcher) Post(e event.Event) error { return d.accept(d.own, e) }

// PostForeign is like [Dispatcher.Post], for an event of another program. It does not wait in memory.
func (d *Dispatcher) PostForeign(e event.Event) error { return d.accept(d.posted, e) }

func (d *Dispatcher) accept(in *intake, e event.Event) error {
	now := d.Clock.Now()
	if wait := in.recent.wait(e, now); wait > 0 {
		accepted.WithLabelValues("repeated").Inc()
		return &DuplicateError{Wait: wait}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	stored, err := in.add(data, now)
	if err != nil {
		accepted.WithLabelValues("lost").Inc()
		return fmt.Errorf("cannot store the event: %w", err)
	}
	in.recent.add(e, now)
	accepted.WithLabelValues("taken").Inc()
	if stored == nil {
		signal(d.holding)
		return nil
	}
	d.flusher.add(stored)
	signal(d.available)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Start delivers the events of an earlier process and new ones until ctx is done.
func (d *Dispatcher) Start(ctx context.Context) error {
	own, err := d.own.wait(ctx, d)
	if err != nil {
		return nil // the process ends
	}
	posted, err := d.posted.wait(ctx, d)
	if err != nil {
		return nil
	}
	sendCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := guard.AfterDone(ctx, "ending deliveries", func() {
		// let attempts in flight finish, or they would be repeated
		select {
		case <-d.Clock.After(d.ShutdownGrace):
		case <-sendCtx.Done():
		}
		cancel()
	})
	defer stop()
	d.resume(ctx, sendCtx)
	var flushing guard.WaitGroup
	flushing.Go("writing event queues", func() {
		guard.Keep(ctx, "writing event queues", func() { d.flusher.run(ctx, d.Clock, d.FlushInterval) })
	})
	flushing.Go("storing events", func() { guard.Keep(ctx, "storing events", func() { d.storeHeld(ctx) }) })
	d.routeEvents(ctx, sendCtx, own, posted)
	flushing.Wait()
	d.running.Wait()
	return d.close(own, posted)
}

// storeHeld stores the events that wait in memory as soon as the disk takes them, until ctx is done.
func (d *Dispatcher) storeHeld(ctx context.Context) {
	for ctx.Err() == nil {
		stored, left := d.own.flush()
		if stored != nil {
			d.flusher.add(stored)
			signal(d.available)
		}
		var retry <-chan time.Time
		if left > 0 {
			retry = d.Clock.After(diskRetry)
		}
		select {
		case <-ctx.Done():
		case <-d.holding:
		case <-retry:
		}
	}
}

// routeEvents moves events from the intakes to the queues of providers until ctx is done. Posted events come
// after events of this process.
func (d *Dispatcher) routeEvents(ctx, sendCtx context.Context, own, posted *queue.Queue) {
	for ctx.Err() == nil {
		intake := own
		r, ok := next(ctx, own)
		if !ok {
			intake = posted
			r, ok = next(ctx, posted)
		}
		if !ok {
			var retry <-chan time.Time
			if own.Len()+posted.Len() > 0 { // the disk does not return them
				retry = d.Clock.After(diskRetry)
			}
			select {
			case <-ctx.Done():
			case <-d.available:
			case <-retry:
			}
			continue
		}
		var e event.Event
		if err := json.Unmarshal(r.Data, &e); err == nil { // cannot fail: we wrote it and its checksum is right
			for _, delivery := range d.route(ctx, e) {
				d.enqueue(ctx, sendCtx, delivery, r.Time, intake == posted)
			}
		}
		if ctx.Err() != nil {
			return // routing may be incomplete
		}
		d.acknowledge(ctx, intake, r)
	}
}

// next returns the oldest event of an intake, and reports events that were dropped from it.
func next(ctx context.Context, intake *queue.Queue) (queue.Record, bool) {
	r, ok := intake.Next()
	if n := intake.TakeDropped(); n > 0 {
		accepted.WithLabelValues("lost").Add(float64(n))
		log.FromContext(ctx).Error(errors.New("the intake queue is full or damaged"),
			"events were dropped before routing", "events", n)
	}
	return r, ok
}

// route calls the router. A panic drops the event and does not end the process.
func (d *Dispatcher) route(ctx context.Context, e event.Event) (deliveries []Delivery) {
	if !guard.Run("routing an event", func() { deliveries = d.Router.Route(ctx, e) }) {
		accepted.WithLabelValues("lost").Inc()
	}
	return deliveries
}

var (
	errNoRoom = errors.New("posted events may fill only half of the queue of a provider")
	errNoDisk = errors.New("the queues of the providers of the namespace use up its share of the disk")
)

// store adds a delivery to the queue of its provider. Posted events leave half of the queue to others, and the
// providers of a namespace leave a part of the disk to other namespaces.
func (d *Dispatcher) store(ctx, sendCtx context.Context, delivery Delivery, at time.Time, posted bool) error {
	d.mu.Lock() // so that the worker does not end before add
	defer d.mu.Unlock()
	w := d.worker(ctx, sendCtx, delivery.Provider)
	if posted && w.outbox.size() > d.Limits.Bytes/2 {
		return errNoRoom
	}
	namespace := delivery.Provider.Namespace
	d.usage.measure(d.Clock.Now(), d.workers)
	if d.usage.isFull(namespace, totalQueues*d.Limits.Bytes) {
		return errNoDisk
	}
	before := w.outbox.size()
	err := w.add(queuedDelivery{Delivery: delivery}, at)
	d.usage.add(namespace, w.outbox.size()-before)
	return err
}

// enqueue stores a delivery. While the queue of the provider cannot be written, it tries again until ctx is done: the
// event has been acknowledged and must not be lost. Other events wait meanwhile, as what fails is the disk of all.
func (d *Dispatcher) enqueue(ctx, sendCtx context.Context, delivery Delivery, at time.Time, posted bool) {
	err := d.store(ctx, sendCtx, delivery, at, posted)
	for tries := 1; isDiskFailure(err); tries++ {
		if tries == 1 {
			log.FromContext(ctx).Error(err, "notifications wait for the disk of --storage-path. Free space on it, or "+
				"replace it", "provider", delivery.Provider.String())
		}
		select {
		case <-ctx.Done():
			return // the event is not removed from the intake
		case <-d.Clock.After(diskRetry):
		}
		err = d.store(ctx, sendCtx, delivery, at, posted)
	}
	if errors.Is(err, errNoDisk) {
		d.Reporter.Report(delivery.Alert, delivery.Provider, ReasonDropped,
			fmt.Sprintf("The notifications that wait for Providers of namespace '%s' use up its share of the disk, "+
				"newest notification dropped. Fix or suspend the Providers that fail", delivery.Provider.Namespace))
	}
	if errors.Is(err, queue.ErrShare) {
		d.Reporter.Report(delivery.Alert, delivery.Provider, ReasonDropped,
			fmt.Sprintf("The notifications about namespace '%s' use up its share of the queue, newest notification "+
				"dropped. Fix or suspend the Provider, or narrow the Alert", delivery.Event.InvolvedObject.Namespace))
	}
	if err != nil {
		count(delivery.Provider, "dropped", 1)
		log.FromContext(ctx).Error(err, "cannot store a notification, notification dropped",
			"alert", delivery.Alert.String(), "provider", delivery.Provider.String())
	}
}

// worker returns the worker of a provider and starts it if necessary.
func (d *Dispatcher) worker(ctx, sendCtx context.Context, provider types.NamespacedName) *worker {
	if w := d.workers[provider]; w != nil {
		return w
	}
	w := &worker{
		Dispatcher: d, provider: provider, outbox: newOutbox(d.Dir, provider, d.Limits),
		available: make(chan struct{}, 1), retryNow: make(chan struct{}, 1),
	}
	d.workers[provider] = w
	d.running.Go("delivering notifications", func() {
		guard.Keep(ctx, "delivering notifications", func() { w.run(ctx, sendCtx) })
	})
	return w
}

// resume starts workers for the provider queues of an earlier process.
func (d *Dispatcher) resume(ctx, sendCtx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dirs, _ := filepath.Glob(filepath.Join(d.Dir, providersDir, "*", "*")) // the pattern is valid
	for _, dir := range dirs {
		d.worker(ctx, sendCtx, types.NamespacedName{Namespace: filepath.Base(filepath.Dir(dir)),
			Name: filepath.Base(dir)})
	}
}

// Forget drops all pending deliveries of a deleted provider.
func (d *Dispatcher) Forget(provider types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.workers[provider]; w != nil {
		if err := w.outbox.clear(); err != nil {
			logger().Error(err, "cannot drop the pending notifications of a deleted Provider",
				"provider", provider.String())
		}
		signal(w.retryNow)
	}
	forgetMetrics(provider)
}

// Retry ends the backoff of a provider, for example because its configuration changed.
func (d *Dispatcher) Retry(provider types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.workers[provider]; w != nil {
		signal(w.retryNow)
	}
}

// Pending returns the number of pending deliveries by provider.
func (d *Dispatcher) Pending() map[types.NamespacedName]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	pending := make(map[types.NamespacedName]int, len(d.workers))
	for provider, w := range d.workers {
		pending[provider] = w.outbox.len()
	}
	return pending
}

func (d *Dispatcher) acknowledge(ctx context.Context, q *queue.Queue, r queue.Record) {
	if err := q.Ack(r); err != nil {
		log.FromContext(ctx).Error(err, "cannot acknowledge an event, it may be sent again after a restart")
	}
	d.flusher.add(q)
}

// close flushes all queues. The intakes stay usable: the next process delivers events that are posted later.
func (d *Dispatcher) close(own, posted *queue.Queue) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own.flush()
	d.own.drop()
	err := errors.Join(own.Close(), posted.Close())
	for _, w := range d.workers {
		err = errors.Join(err, w.outbox.close())
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("cannot write the event queues to disk: %w", err)
	}
	return nil
}
