package artifact

import (
	"errors"
	"sync"
	"time"
)

// An artifact that its server does not have, or whose server does not answer, does not fail its consumers at once:
// after a start over the statuses of Flux or of a process with another disk, the source stores it again within seconds.
const (
	absentPatience = time.Minute     // how long an artifact may be absent before that is a failure
	absentRetry    = 5 * time.Second // a new artifact of the source ends the wait at once
	maxAbsent      = 10_000          // artifacts; of more, the absence is a failure at once
)

// absentError is the error of an artifact that cannot be downloaded from its server.
type absentError struct{ error }

func (e *absentError) Unwrap() error { return e.error }

func isAbsent(err error) bool { return errors.As(err, new(*absentError)) }

// absence knows since when artifacts are absent.
type absence struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// isRecent reports whether an artifact was found absent for the first time less than a minute ago. If there are too
// many, it forgets artifacts that were found absent more than an hour ago.
func (a *absence) isRecent(id string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, ok := a.since[id]
	if ok {
		return now.Sub(since) < absentPatience
	}
	if len(a.since) >= maxAbsent {
		for old, since := range a.since {
			if now.Sub(since) > time.Hour {
				delete(a.since, old)
			}
		}
	}
	if len(a.since) >= maxAbsent {
		return false
	}
	if a.since == nil {
		a.since = map[string]time.Time{}
	}
	a.since[id] = now
	return true
}

// found forgets that an artifact was absent.
func (a *absence) found(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, id)
}
