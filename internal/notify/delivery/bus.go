// Package delivery brings events to those who want to hear of them, and loses none on the way.
//
// An event that is taken up is on disk before anybody is told so. It goes from the intake to a queue of each
// provider that an alert names, and from there, by one worker a provider that has a few tries under way at
// once, to the outside; it leaves each of them once it is in the next. So a provider that is slow or down
// holds up no other, what waits needs no memory, and a process that is killed goes on where it was: some
// events then come twice.
package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// Router tells who wants an event.
type Router interface {
	Route(ctx context.Context, e event.Event) []Delivery
}

// Delivery is an event for one provider, as an alert wants it.
type Delivery struct {
	Alert    types.NamespacedName `json:"alert"`
	Provider types.NamespacedName `json:"provider"`
	Event    event.Event          `json:"event"`
}

// Sender tries once to bring an event to the outside. Of its errors those that are faults tell whether a
// retry helps, and when.
type Sender interface {
	Send(ctx context.Context, d Delivery) error
}

// Teller tells the owners of an alert and its provider what went wrong with deliveries. It must not block.
type Teller interface {
	Tell(alert, provider types.NamespacedName, reason, message string)
}

// Reasons of what a [Teller] tells.
const (
	ReasonFailed  = "NotificationFailed"  // a delivery was given up
	ReasonDelayed = "NotificationDelayed" // deliveries fail, and are tried again
	ReasonDropped = "NotificationDropped" // the queue of the provider was full, or damaged
)

// Options are how a bus works. The zero value of each but the first four is the default.
type Options struct {
	Dir    string // where the queues are
	Router Router
	Sender Sender
	Teller Teller

	Clock       clock.Clock
	RateLimit   time.Duration // for which an event is not told again; negative: always
	Limits      queue.Limits  // of each queue
	Backoff     Backoff
	GiveUp      time.Duration // age from which on a delivery that fails is given up
	SendTimeout time.Duration // of one try
	Idle        time.Duration // after which a worker without work ends
	// how long what was taken up may be in the care of the kernel, which outlives us, but not the machine
	SyncEvery time.Duration
	Grace     time.Duration // that a try under way has when the process ends
}

// Backoff is how long to wait after failures in a row: from Min to Max, twice as long each time.
type Backoff struct{ Min, Max time.Duration }

// DefaultRateLimit is that of the documented behaviour.
const DefaultRateLimit = 5 * time.Minute

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Limits == (queue.Limits{}) {
		o.Limits = queue.DefaultLimits
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.RateLimit, DefaultRateLimit}, {&o.Backoff.Min, 5 * time.Second}, {&o.Backoff.Max, 5 * time.Minute},
		{&o.GiveUp, 24 * time.Hour},
		{&o.SendTimeout, 2 * time.Minute}, {&o.Idle, time.Minute}, {&o.SyncEvery, 200 * time.Millisecond},
		{&o.Grace, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
}

// Bus takes events up and delivers them. Only the replica that leads starts it.
type Bus struct {
	Options
	seen    *seen
	arrived chan struct{} // there is something in the intake
	intake  func() (*queue.Queue, error)
	behind  *behind

	mu      sync.Mutex
	lines   map[types.NamespacedName]*line // of providers that have work
	workers sync.WaitGroup
}

// New returns a bus. Nothing is opened before an event comes or the bus is started: a replica that does not
// lead leaves the disk alone.
func New(o Options) *Bus {
	o.setDefaults()
	b := &Bus{Options: o, seen: newSeen(o.RateLimit), arrived: make(chan struct{}, 1),
		lines: map[types.NamespacedName]*line{}, behind: newBehind()}
	b.intake = sync.OnceValues(func() (*queue.Queue,
		error) {
		return queue.Open(filepath.Join(o.Dir, "intake"), o.Limits)
	})
	return b
}

// RepeatedError says that an event is not taken up, as it was not long ago.
type RepeatedError struct {
	Wait time.Duration // until it would be
}

func (e *RepeatedError) Error() string {
	return fmt.Sprintf("the same was told of the object lately: it is taken up again in %s", e.Wait.Round(time.Second))
}

// Post takes an event up; it is on disk when the error is nil. Else that is a [*RepeatedError], or the disk failed.
func (b *Bus) Post(e event.Event) error {
	now := b.Clock.Now()
	if wait := b.seen.wait(e, now); wait > 0 {
		taken.WithLabelValues("repeated").Inc()
		return &RepeatedError{wait}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	in, err := b.intake()
	if err == nil {
		err = in.Append(data, now)
	}
	if err != nil {
		taken.WithLabelValues("lost").Inc()
		return fmt.Errorf("cannot take up an event: %w", err)
	}
	b.seen.add(e, now)
	taken.WithLabelValues("taken").Inc()
	b.behind.add(in)
	signal(b.arrived)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (b *Bus) NeedLeaderElection() bool { return true }

// Start delivers what an earlier process left and what comes, until ctx ends.
func (b *Bus) Start(ctx context.Context) error {
	in, err := b.intake()
	if err != nil {
		return fmt.Errorf("cannot open the queue of events: %w", err)
	}
	sends, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ends := context.AfterFunc(ctx, func() { // tries under way come to their end, or they would be made twice
		select {
		case <-b.Clock.After(b.Grace):
		case <-sends.Done():
		}
		cancel()
	})
	defer ends()
	if err := b.resume(ctx, sends); err != nil {
		return err
	}
	var rest sync.WaitGroup
	rest.Go(func() { b.behind.run(ctx, b.Clock, b.SyncEvery) })
	b.route(ctx, sends, in)
	rest.Wait()
	b.workers.Wait()
	return b.close(in)
}

// route brings events from the intake to the queues of those who want them.
func (b *Bus) route(ctx, sends context.Context, in *queue.Queue) {
	for ctx.Err() == nil {
		r, ok := in.Next()
		if n := in.Lost(); n > 0 {
			taken.WithLabelValues("lost").Add(float64(n))
			log.FromContext(ctx).Error(errors.New("the queue is full or damaged"),
				"events were dropped before anybody was asked who wants them", "events", n)
		}
		if !ok {
			select {
			case <-ctx.Done():
			case <-b.arrived:
			}
			continue
		}
		var e event.Event
		if err := json.Unmarshal(r.Data, &e); err == nil { // it was written by us, and its checksum is right
			for _, d := range b.wanted(ctx, e) {
				b.enqueue(ctx, sends, d, r.Time)
			}
		}
		if ctx.Err() != nil {
			return // who wants it may not have been answered in full
		}
		b.acknowledge(ctx, in, r)
	}
}

// wanted asks the router, whose panic costs the event, and not the process.
func (b *Bus) wanted(ctx context.Context, e event.Event) (all []Delivery) {
	defer func() {
		if p := recover(); p != nil {
			taken.WithLabelValues("lost").Inc()
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "cannot tell who wants an event")
			all = nil
		}
	}()
	return b.Router.Route(ctx, e)
}

// enqueue gives a delivery to the worker of its provider.
func (b *Bus) enqueue(ctx, sends context.Context, d Delivery, at time.Time) {
	b.mu.Lock() // so that the worker does not end between
	defer b.mu.Unlock()
	l, err := b.line(ctx, sends, d.Provider)
	if err == nil {
		err = l.add(parcel{Delivery: d}, at)
	}
	if err != nil {
		count(d.Provider, "dropped", 1)
		log.FromContext(ctx).Error(err, "a notification is lost", "alert", d.Alert.String(), "provider",
			d.Provider.String())
	}
}

// line returns that of a provider, and starts its worker if there is none.
func (b *Bus) line(ctx, sends context.Context, provider types.NamespacedName) (*line, error) {
	if l := b.lines[provider]; l != nil {
		return l, nil
	}
	q, err := queue.Open(b.dir(provider), b.Limits)
	if err != nil {
		return nil, err
	}
	l := &line{Bus: b, provider: provider, queue: q, wake: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	b.lines[provider] = l
	b.workers.Go(func() { l.work(ctx, sends) })
	return l, nil
}

const providersDir = "providers"

func (b *Bus) dir(provider types.NamespacedName) string {
	return filepath.Join(b.Dir, providersDir, filepath.Base(provider.Namespace), filepath.Base(provider.Name))
}

// resume starts the workers of providers for which an earlier process left work.
func (b *Bus) resume(ctx, sends context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(b.Dir, providersDir, "*", "*"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot find what is to be delivered: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, dir := range dirs {
		provider := types.NamespacedName{Namespace: filepath.Base(filepath.Dir(dir)), Name: filepath.Base(dir)}
		if _, err := b.line(ctx, sends, provider); err != nil {
			return fmt.Errorf("cannot go on with what is to be delivered: %w", err)
		}
	}
	return nil
}

// Forget drops what waits for a provider that is gone.
func (b *Bus) Forget(provider types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[provider]; l != nil {
		if err := l.queue.Clear(); err != nil {
			log.Log.WithName("notifications").
				Error(err, "cannot drop what waits for a provider that is gone", "provider", provider.String())
		}
		signal(l.again)
	}
	forgetMetrics(provider)
}

// Retry tries at once what waits for a provider, as it is another one now.
func (b *Bus) Retry(provider types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[provider]; l != nil {
		signal(l.again)
	}
}

// Waiting tells how many deliveries wait, by provider.
func (b *Bus) Waiting() map[types.NamespacedName]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[types.NamespacedName]int, len(b.lines))
	for provider, l := range b.lines {
		all[provider] = l.queue.Waiting()
	}
	return all
}

func (b *Bus) acknowledge(ctx context.Context, q *queue.Queue, r queue.Record) {
	if err := q.Ack(r); err != nil {
		log.FromContext(ctx).Error(err, "what was delivered may come again after a restart")
	}
	b.behind.add(q)
}

// close writes all to the disk. The intake stays of use: what the last passes tell is delivered by the next process.
func (b *Bus) close(in *queue.Queue) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := in.Close()
	for _, l := range b.lines {
		err = errors.Join(err, l.queue.Close())
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("cannot write to disk what is to be delivered: %w", err)
	}
	return nil
}
