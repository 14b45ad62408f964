package delivery

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	lru "k8s.io/utils/lru"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	maxObjects         = 10_000
	maxEventsPerObject = 32 // of each severity class
)

// recentEvents suppresses duplicates: events with the same object, severity, message, revision, change token and commit
// status within an interval. An event that reports success ends the suppression of errors of the object, so that
// the next error is sent: the user on call was informed that the object recovered.
type recentEvents struct {
	interval time.Duration

	mu      sync.Mutex
	objects *lru.Cache // object to *objectEvents
}

// objectEvents holds the recent events of an object, of each severity class.
type objectEvents struct{ errors, others []acceptedEvent }

// acceptedEvent is when an event was accepted. An object has few of them, for which a map takes several times as much.
type acceptedEvent struct {
	digest [sha256.Size]byte
	at     time.Time
}

func newRecentEvents(interval time.Duration) *recentEvents {
	return &recentEvents{interval: interval, objects: lru.New(maxObjects)}
}

// wait returns how long an event is still suppressed; zero if it is not a duplicate.
func (r *recentEvents) wait(e event.Event, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.objects.Get(objectOf(e))
	if !ok {
		return 0
	}
	events, key := *known.(*objectEvents).of(e), digest(e)
	n := slices.IndexFunc(events, func(a acceptedEvent) bool { return a.digest == key })
	if n < 0 {
		return 0
	}
	return max(0, events[n].at.Add(r.interval).Sub(now))
}

// add records an accepted event.
func (r *recentEvents) add(e event.Event, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := objectOf(e)
	known, ok := r.objects.Get(name)
	if !ok {
		known = &objectEvents{}
		r.objects.Add(name, known)
	}
	object := known.(*objectEvents)
	if reportsSuccess(e) {
		object.errors = nil
	}
	events, key := object.of(e), digest(e)
	*events = slices.DeleteFunc(*events, func(a acceptedEvent) bool {
		return a.digest == key || len(*events) >= maxEventsPerObject && !a.at.Add(r.interval).After(now)
	})
	if len(*events) < maxEventsPerObject { // above the bound, duplicates are sent rather than lost
		*events = append(*events, acceptedEvent{key, now})
	}
}

func (o *objectEvents) of(e event.Event) *[]acceptedEvent {
	if e.Severity == event.Error {
		return &o.errors
	}
	return &o.others
}

// reportsSuccess reports whether the event means that its object is ready, not that it is progressing.
func reportsSuccess(e event.Event) bool {
	return e.Severity == event.Info && strings.HasSuffix(e.Reason, "Succeeded")
}

func objectOf(e event.Event) string {
	o := e.InvolvedObject
	return strings.Join([]string{e.Group(), o.Kind, o.Namespace, o.Name}, "/")
}

func digest(e event.Event) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{e.Severity, e.Metadata[event.Revision], e.Metadata[event.Token],
		e.Metadata[event.CommitStatus], e.Message}, "\x00")))
}
