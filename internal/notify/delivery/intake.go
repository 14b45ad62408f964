package delivery

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// diskRetry is how long to wait before an operation that the disk refused is tried again.
const diskRetry = time.Second

// maxHeld bounds the memory for events of this process that the disk does not take, in bytes.
const maxHeld = 4 << 20

// intake is a queue of accepted events. Events of this process and posted events have separate intakes, so that other
// programs can neither drop the events of this process from its queue nor suppress them as duplicates.
type intake struct {
	recent  *recentEvents
	queue   lazyQueue
	maxHeld int64 // bytes of events that may wait in memory for the disk; 0: they are refused

	mu    sync.Mutex
	held  []queue.Record   // in the order of their arrival
	size  int64            // of held
	owned map[string]int64 // size by namespace
}

func newIntake(o Options, name string, maxHeld int64) *intake {
	in := &intake{recent: newRecentEvents(o.RateLimit), maxHeld: maxHeld}
	in.queue.dir, in.queue.limits = filepath.Join(o.Dir, name), o.Limits
	return in
}

// add stores an event behind all others. It returns the queue that has it, nil if the event waits in memory.
func (in *intake) add(data []byte, at time.Time) (*queue.Queue, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q, err := in.storeHeld()
	if err == nil {
		q, err = in.queue.append(data, at)
	}
	if !isDiskFailure(err) || !in.hold(data, at) {
		return q, err
	}
	if len(in.held) == 1 {
		logger().Error(err, "events wait in memory for the disk of --storage-path. Free space on it, or replace it")
	}
	return nil, nil
}

// hold keeps an event in memory. It reports whether there is room: a namespace may use at most as much as it leaves
// free while there are events of others.
func (in *intake) hold(data []byte, at time.Time) bool {
	owner, n := namespaceOf(data), int64(len(data))
	others := in.size - in.owned[owner]
	if in.size+n > in.maxHeld || others > 0 && in.owned[owner]+n > (in.maxHeld-others)/2 {
		return false
	}
	if in.owned == nil {
		in.owned = map[string]int64{}
	}
	in.held = append(in.held, queue.Record{Data: data, Time: at})
	in.size, in.owned[owner] = in.size+n, in.owned[owner]+n
	return true
}

// storeHeld stores the events that wait in memory. It returns the queue, or the error for which some still wait.
func (in *intake) storeHeld() (q *queue.Queue, err error) {
	for stored := 0; len(in.held) > 0; stored++ {
		r := in.held[0]
		if q, err = in.queue.append(r.Data, r.Time); isDiskFailure(err) {
			return nil, err
		}
		if err != nil {
			accepted.WithLabelValues("lost").Inc()
			logger().Error(err, "cannot store an event that waited for the disk, no notification is sent")
		}
		in.release(r)
		if len(in.held) == 0 {
			logger().Info("the disk of --storage-path works again, events that waited are stored", "events", stored+1)
		}
	}
	return q, nil
}

// release forgets the oldest event that waits in memory.
func (in *intake) release(r queue.Record) {
	owner, n := namespaceOf(r.Data), int64(len(r.Data))
	in.held[0] = queue.Record{} // its memory is free
	in.held, in.size, in.owned[owner] = in.held[1:], in.size-n, in.owned[owner]-n
	if in.owned[owner] == 0 {
		delete(in.owned, owner)
	}
}

// flush tries to store the events that wait in memory. It returns the queue if some were stored, and how many are left.
func (in *intake) flush() (*queue.Queue, int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q, _ := in.storeHeld() // logged when the first one had to wait
	return q, len(in.held)
}

// drop forgets the events that wait in memory, and counts them as lost.
func (in *intake) drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.held); n > 0 {
		accepted.WithLabelValues("lost").Add(float64(n))
		logger().Error(errors.New("the process ends"), "events that waited for the disk are lost", "events", n)
	}
	in.held, in.size, in.owned = nil, 0, nil
}

// wait opens the queue. It waits for the disk until ctx is done.
func (in *intake) wait(ctx context.Context, d *Dispatcher) (*queue.Queue, error) {
	for isLogged := false; ; isLogged = true {
		q, err := in.queue.open()
		if err == nil {
			return q, nil
		}
		if !isLogged {
			logger().Error(err, "cannot open a queue of events, no notifications are sent until the disk of "+
				"--storage-path works", "directory", in.queue.dir)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.Clock.After(diskRetry):
		}
	}
}

// logger is for messages that are about no request.
func logger() logr.Logger { return log.Log.WithName("notifications") }
