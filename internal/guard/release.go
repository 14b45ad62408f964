package guard

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// releaseInterval is how often [ReleaseMemory] looks.
const releaseInterval = 15 * time.Second

// ReleaseMemory returns memory to the system while the process is idle, until ctx ends. Without it, a process keeps
// what its busiest moment needed: the Go runtime keeps twice what is live, and what is fragmented.
func ReleaseMemory(ctx context.Context) {
	ticker := time.NewTicker(releaseInterval)
	defer ticker.Stop()
	releaseMemory(ctx, ticker.C)
}

func releaseMemory(ctx context.Context, ticks <-chan time.Time) {
	for before := readMemory(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		now := readMemory()
		if now.isWorthReleasing(before) {
			debug.FreeOSMemory()
			now = readMemory()
		}
		before = now
	}
}

// memoryUse is what the Go heap holds, in bytes.
type memoryUse struct {
	allocated uint64 // since the start of the process
	live      uint64 // in the last garbage collection, which the runtime does every two minutes at least
	held      uint64 // from the system: live objects, garbage and free pages, but not the gaps between live objects
}

// isWorthReleasing reports whether the process was idle since an earlier look, and holds far more than is live. A
// release costs a garbage collection. The limits are so far apart that a process which reconciles its objects at their
// interval collects no more often than it would without.
func (m memoryUse) isWorthReleasing(before memoryUse) bool {
	const least = 16 << 20
	return m.allocated-before.allocated < m.live/2 && m.held > m.live+max(m.live/2, least)
}

func readMemory() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return memoryUse{
		allocated: samples[0].Value.Uint64(), live: samples[1].Value.Uint64(),
		held: samples[2].Value.Uint64() + samples[3].Value.Uint64(),
	}
}
