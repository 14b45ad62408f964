package delivery

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	lru "k8s.io/utils/lru"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	keptObjects = 10_000
	keptEvents  = 32 // of an object
)

// seen knows what was told lately, so that it is told once: the same object, severity, message, revision and
// token of change. Once an object tells that it got over its errors, the next one counts again: who is on
// call was told that all is well.
type seen struct {
	interval time.Duration

	mu      sync.Mutex
	objects *lru.Cache // from an object to its *told
}

// told are the events of an object, and when they came.
type told struct {
	errors, others map[[sha256.Size]byte]time.Time
}

func newSeen(interval time.Duration) *seen {
	return &seen{interval: interval, objects: lru.New(keptObjects)}
}

// wait is how long an event is a repetition; zero if it is none.
func (s *seen) wait(e event.Event, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.objects.Get(objectOf(e))
	if !ok {
		return 0
	}
	at, ok := known.(*told).of(e)[digest(e)]
	if !ok {
		return 0
	}
	return max(0, at.Add(s.interval).Sub(now))
}

// add says that an event was taken up.
func (s *seen) add(e event.Event, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := objectOf(e)
	known, ok := s.objects.Get(object)
	if !ok {
		known = &told{map[[sha256.Size]byte]time.Time{}, map[[sha256.Size]byte]time.Time{}}
		s.objects.Add(object, known)
	}
	t := known.(*told)
	if settled(e) {
		clear(t.errors)
	}
	times := t.of(e)
	if len(times) >= keptEvents {
		for key, at := range times {
			if !at.Add(s.interval).After(now) {
				delete(times, key)
			}
		}
	}
	if len(times) < keptEvents { // whoever tells that much is told of again: better twice than never
		times[digest(e)] = now
	}
}

func (t *told) of(e event.Event) map[[sha256.Size]byte]time.Time {
	if e.Severity == event.Error {
		return t.errors
	}
	return t.others
}

// settled tells whether an event says that its object is well, and not that it is still trying.
func settled(e event.Event) bool {
	return e.Severity == event.Info && strings.HasSuffix(e.Reason, "Succeeded")
}

func objectOf(e event.Event) string {
	o := e.InvolvedObject
	return strings.Join([]string{e.Group(), o.Kind, o.Namespace, o.Name}, "/")
}

func digest(e event.Event) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{e.Severity, e.Metadata[event.Revision], e.Metadata[event.Token],
		e.Message}, "\x00")))
}
