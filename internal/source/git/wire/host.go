package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// HTTP goes out by package egress, which keeps hosts apart. SSH is kept apart here, so that a host that hangs
// costs the sources of others nothing.

const (
	perHost   = 6                // conversations over SSH that a host has at once
	answerIn  = 30 * time.Second // in which a host must let a conversation begin
	queueFor  = 5 * time.Second  // behind the conversations that a host has
	leastRest = 10 * time.Second // of a host that hung; twice as long each time
	mostRest  = 5 * time.Minute
	maxHosts  = 10_000
)

// hosts are those that this process talks to over SSH.
type hosts struct {
	now func() time.Time

	mu    sync.Mutex
	known map[string]*sshHost
}

// sshHost is what is known of a host.
type sshHost struct {
	slots chan struct{}
	hung  int       // times in a row
	rest  time.Time // until when it is left alone
}

var overSSHTo = hosts{now: time.Now}

// enter waits for leave to talk to a host, or says at once that it does not answer. The one who was let in
// says when it is done, and whether the host hung.
func (h *hosts) enter(ctx context.Context, address string) (done func(hung bool), err error) {
	host, err := h.awake(address)
	if err != nil {
		return nil, err
	}
	queue := time.NewTimer(queueFor)
	defer queue.Stop()
	select {
	case host.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-queue.C:
		return nil, gitFault("%s does not get on with the %d conversations that it has", address, perHost).
			WithHint("Others wait until it does; the last artifact keeps being served").After(queueFor)
	}
	var once sync.Once
	return func(hung bool) {
		once.Do(func() {
			h.note(host, hung)
			<-host.slots
		})
	}, nil
}

func (h *hosts) awake(address string) (*sshHost, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	host := h.known[address]
	if host == nil {
		if h.known == nil || len(h.known) >= maxHosts {
			h.known = map[string]*sshHost{}
		}
		host = &sshHost{slots: make(chan struct{}, perHost)}
		h.known[address] = host
	}
	if left := host.rest.Sub(h.now()); left > 0 {
		return nil, notAnswering(address).After(left)
	}
	return host, nil
}

func notAnswering(address string) *fault.Fault {
	return gitFault("%s does not answer", address).WithHint("Check the network on the way, and the port in spec.url")
}

func (h *hosts) note(host *sshHost, hung bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !hung {
		host.hung, host.rest = 0, time.Time{}
		return
	}
	host.rest = h.now().Add(min(leastRest<<min(host.hung, 10), mostRest))
	host.hung++
}

// isHang tells whether a host let us wait until time was up.
func isHang(ctx context.Context, err error) bool {
	var timeout net.Error
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
