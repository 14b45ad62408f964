package sandbox

import (
	"context"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	memoryStep    = 16 << 20 // by which a lease grows
	meterInterval = 10 * time.Millisecond
)

// meter makes the memory of a child a part of the budget, so that all children and all other work fit into the memory
// of the process together. The kernel may end all processes of a container at once if they do not.
type meter struct {
	lease   *guard.Lease
	done    chan struct{}
	ended   chan struct{}
	refused error // read it after ended
}

// startMeter follows the memory of a child until stop. What says what the memory is for.
func startMeter(ctx context.Context, c *Child, what string) *meter {
	m := &meter{lease: guard.NewLease(ctx, what), done: make(chan struct{}), ended: make(chan struct{})}
	guard.Go("the memory of a child process", func() {
		defer close(m.ended)
		tick := time.NewTicker(meterInterval)
		defer tick.Stop()
		for m.refused == nil {
			select {
			case <-m.done:
				return
			case <-c.ended:
				return
			case <-tick.C:
				m.refused = m.follow(ctx, c)
			}
		}
		c.kill()
	})
	return m
}

// follow grows the lease to what the child uses. The child stands still while other work has the memory.
func (m *meter) follow(ctx context.Context, c *Child) error {
	more := privateMemory(c.process.Process.Pid) - c.options.FreeMemory - m.lease.Bytes()
	if more <= 0 {
		return nil
	}
	pause(c.process.Process)
	defer resume(c.process.Process)
	return m.lease.Grow(ctx, (more+memoryStep-1)/memoryStep*memoryStep)
}

// stop ends the meter, and returns why the child could not have more memory. A child that used much is ended: Go keeps
// freed memory for a while.
func (m *meter) stop(c *Child) error {
	close(m.done)
	<-m.ended
	if m.lease.Bytes() > 0 {
		c.kill()
		<-c.ended
		m.lease.Release()
	}
	return m.refused
}
