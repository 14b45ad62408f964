package gate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// alarms wake gates at the times at which they change, whatever their interval is; one a gate.
type alarms struct {
	mu     sync.Mutex
	timers map[types.UID]clock.Timer
}

// set replaces the alarm of a gate; a zero time sets none.
func (a *alarms) set(c clock.WithDelayedExecution, gate types.UID, at, now time.Time, wake func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.timers[gate]; t != nil {
		t.Stop()
		delete(a.timers, gate)
	}
	if at.IsZero() {
		return
	}
	if a.timers == nil {
		a.timers = map[types.UID]clock.Timer{}
	}
	a.timers[gate] = c.AfterFunc(max(at.Sub(now), time.Millisecond), wake)
}

func (a *alarms) stop(gate types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.timers[gate]; t != nil {
		t.Stop()
		delete(a.timers, gate)
	}
}
