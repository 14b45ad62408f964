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

// set replaces the timer of a gate whose evaluation began at a time. A zero time sets none. A time that came during the
// evaluation enqueues the gate at once.
func (t *timers) set(c clock.WithDelayedExecution, gate types.UID, at, began time.Time, enqueue func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(gate)
	if at.IsZero() {
		return
	}
	now := c.Now()
	if at.After(began) && !at.After(now) {
		enqueue()
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
