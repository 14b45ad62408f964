package guard

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestMemoryIsReleasedAtRestOnly(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for name, c := range map[string]struct {
		before, now memoryUse
		want        bool
	}{
		"idle after much work":      {memoryUse{allocated: 900 * mb}, memoryUse{910 * mb, 100 * mb, 300 * mb}, true},
		"at work":                   {memoryUse{allocated: 800 * mb}, memoryUse{910 * mb, 100 * mb, 300 * mb}, false},
		"little can be released":    {memoryUse{allocated: 900 * mb}, memoryUse{910 * mb, 100 * mb, 149 * mb}, false},
		"a small process":           {memoryUse{allocated: 900 * mb}, memoryUse{901 * mb, 8 * mb, 20 * mb}, false},
		"a small one after a burst": {memoryUse{allocated: 900 * mb}, memoryUse{901 * mb, 8 * mb, 90 * mb}, true},
	} {
		if got := c.now.isWorthReleasing(c.before); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// blocks keeps memory from being allocated on the stack.
var blocks [][]byte

func TestMemoryIsReleased(t *testing.T) {
	const size = 256 << 20
	for range 256 {
		blocks = append(blocks, make([]byte, size/256))
	}
	busy := readMemory()
	blocks = nil
	runtime.GC() // as the runtime does every two minutes: until then, the blocks count as live
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(done)
		releaseMemory(ctx, ticks)
	}()
	for range 3 { // the third is taken after the second has been handled
		ticks <- time.Time{}
	}
	if now := readMemory(); busy.held < size || now.held > size/2 {
		t.Errorf("the heap holds %d MB, and held %d before", now.held>>20, busy.held>>20)
	}
	cancel()
	<-done
}
