package ui

import (
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/ui/state"
)

const (
	usageMinutes = 30
	maxUsages    = 2000 // workloads whose usage is kept
)

// usage is what a workload used in each of the last minutes, the oldest first; -1 for a minute without a request.
type usage struct {
	CPU    [usageMinutes]int64 `json:"cpu"`    // in 1/1000 of a core
	Memory [usageMinutes]int64 `json:"memory"` // bytes

	last int64 // minute since 1970
}

// usages keeps what workloads used while pages show them: each request adds what it read. The zero value is ready to
// use.
type usages struct {
	mu    sync.Mutex
	known lru.Cache[string, *usage]
}

// add records what a workload uses now, and returns a copy of what it used before and now. It returns nil if usage is
// not known, which it is not either if the user may not read it.
func (u *usages) add(w *state.Workload, now time.Time) *usage {
	if w.CPU == 0 && w.Memory == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	minute := now.Unix() / 60
	one, ok := u.known.Get(w.ID)
	if !ok {
		one = &usage{last: minute - usageMinutes}
		u.known.Add(w.ID, one, 1, lru.Limits{Count: maxUsages})
	}
	for ; one.last < minute; one.last++ {
		one.shift()
		if minute-one.last > usageMinutes {
			one.last = minute - usageMinutes // all that is known is older
		}
	}
	one.CPU[usageMinutes-1], one.Memory[usageMinutes-1] = w.CPU, w.Memory
	shown := *one
	return &shown
}

// shift begins a minute.
func (u *usage) shift() {
	copy(u.CPU[:], u.CPU[1:])
	copy(u.Memory[:], u.Memory[1:])
	u.CPU[usageMinutes-1], u.Memory[usageMinutes-1] = -1, -1
}
