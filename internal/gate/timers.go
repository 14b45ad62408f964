package gate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// timers enqueue gates at the times at which they change, independent of their interval. There is one per gate.
type timers struct {
	mu    sync.Mutex
	byUID map[types.UID]clock.Timer
}

// set replaces the timer of a gate. A zero time sets none.
func (t *timers) set(c clock.WithDelayedExecution, gate types.UID, at, now time.Time, enqueue func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(gate)
	if at.IsZero() {
		return
	}
	if t.byUID == nil {
		t.byUID = map[types.UID]clock.Timer{}
	}
	t.byUID[gate] = c.AfterFunc(max(at.Sub(now), time.Millisecond), enqueue)
}

func (t *timers) stop(gate types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(gate)
}

func (t *timers) remove(gate types.UID) {
	if timer := t.byUID[gate]; timer != nil {
		timer.Stop()
		delete(t.byUID, gate)
	}
}
