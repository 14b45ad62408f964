// Package sandbox runs work of tenants in child processes with limits of memory and time: the templates of charts, and
// kustomize. Such work can loop or allocate without end, and Go cannot stop it; a process can be killed. A child is
// this binary, started again: see [Serve]. It has no environment, opens no file and no connection, and sees only what
// its parent sends to it.
package sandbox

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// Options configure a [Pool]. Zero values are defaults.
type Options struct {
	Argument   string        // of [Serve]
	Work       string        // what children do, for messages: "renders charts"
	Executable string        // the binary that children run; default: the running one
	MaxMemory  int64         // bytes that one work may use; default: a quarter of the process's, at most 512 MiB
	FreeMemory int64         // bytes that a child may use without a lease; default: 48 MiB
	Timeout    time.Duration // of one work; default: 1 minute
	Children   int           // processes at a time, of which some are for other namespaces; default: 4 or more
	IdleTTL    time.Duration // an unused child exits after this; default: 1 minute
}

const (
	defaultMemory  = 512 << 20
	defaultFree    = 48 << 20 // the runtime, and most charts
	defaultTimeout = time.Minute
	defaultIdleTTL = time.Minute
	minChildren    = 4 // so that work of one namespace that does not end leaves children to others
)

// Pool is a pool of child processes. It is safe for concurrent use.
type Pool struct {
	Options              // with defaults
	turns   *guard.Turns // of the children that may run, by namespace

	mu     sync.Mutex
	idle   []*Child
	closed bool
}

// New returns a pool. It starts no process before the first work.
func New(o Options) *Pool {
	if o.MaxMemory <= 0 {
		o.MaxMemory = min(defaultMemory, guard.MemoryLimit()/4)
	}
	if o.FreeMemory <= 0 {
		o.FreeMemory = defaultFree
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Children <= 0 {
		o.Children = max(minChildren, min(runtime.NumCPU(), int(guard.MemoryLimit()/o.MaxMemory)))
	}
	if o.IdleTTL <= 0 {
		o.IdleTTL = defaultIdleTTL
	}
	return &Pool{Options: o, turns: guard.NewTurns(o.Children)}
}

// Do lets a free child work, and waits for one, of which the owner of ctx has a part. Talk sends a request and reads
// the answer; it is called again with another child if an idle one was killed from outside. An error of talk ends the
// child, so errors of the work itself are not returned by talk. The child is killed if ctx ends. What names the work,
// as in "memory for the build". The error is an [*Ended] if the child ended or had to be ended.
func (p *Pool) Do(ctx context.Context, what string, talk func(context.Context, *Child) error) error {
	done, err := p.turns.Take(ctx, guard.OwnerOf(ctx))
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, errTimeout)
	defer cancel()

	c, reused, err := p.take()
	if err != nil {
		return err
	}
	err = c.work(ctx, what, talk)
	if reused && c.exited() && wasLost(err) { // for example killed from outside while it was idle
		if c, err = start(p.Options); err != nil {
			return err
		}
		err = c.work(ctx, what, talk)
	}
	p.put(c)
	return err
}

// Close ends the children that are idle now or become idle later.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		c.kill()
	}
}

// take returns an idle child, or a new one.
func (p *Pool) take() (c *Child, reused bool, err error) {
	p.mu.Lock()
	for len(p.idle) > 0 {
		c = p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if c.expiry.Stop() && !c.exited() {
			p.mu.Unlock()
			return c, true, nil
		}
	}
	p.mu.Unlock()
	c, err = start(p.Options)
	return c, false, err
}

// put keeps a child that still runs for the next work. More idle children than processors would only hold memory.
func (p *Pool) put(c *Child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !c.ready || len(p.idle) >= runtime.NumCPU() {
		c.kill()
		return
	}
	c.expiry = guard.AfterFunc("the end of a child process", p.IdleTTL, func() { p.expire(c) })
	p.idle = append(p.idle, c)
}

// expire ends a child that had no work for a while.
func (p *Pool) expire(c *Child) {
	p.mu.Lock()
	p.idle = slices.DeleteFunc(p.idle, func(other *Child) bool { return other == c })
	p.mu.Unlock()
	c.kill()
}
