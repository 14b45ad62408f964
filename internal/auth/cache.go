package auth

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// early is how long before its end a credential is renewed, so that none ends on its way; short-lived ones are renewed in their last quarter.
	early    = 5 * time.Minute
	maxCache = 10_000 // credentials
)

// cache keeps credentials until shortly before they expire. Who asks for what another is getting waits for it.
// The key must hold everything that the credential depends on.
type cache[T any] struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	kept map[string]*entry[T]
}

type entry[T any] struct {
	turn  chan struct{} // held by the one who gets
	value T
	until time.Time // guarded by turn, as value is
	seen  time.Time // guarded by the cache's mutex
}

func (c *cache[T]) now() time.Time {
	if c.clock == nil {
		return time.Now()
	}
	return c.clock.Now()
}

// get returns what is kept under key, or gets it. Failures are not kept.
func (c *cache[T]) get(ctx context.Context, key string, fetch func(context.Context) (T, time.Time, error)) (T, error) {
	e := c.entry(key)
	var none T
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if c.now().Before(e.until) {
		return e.value, nil
	}
	value, expires, err := fetch(ctx)
	if err != nil {
		return none, err
	}
	left := expires.Sub(c.now())
	e.value, e.until = value, expires.Add(-min(early, left/4))
	return value, nil
}

func (c *cache[T]) entry(key string) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.kept[key]
	if e == nil {
		c.shrink()
		if c.kept == nil {
			c.kept = map[string]*entry[T]{}
		}
		e = &entry[T]{turn: make(chan struct{}, 1)}
		c.kept[key] = e
	}
	e.seen = c.now()
	return e
}

// shrink forgets what nobody asked for in a day, the life of the longest credential, and all when that does not do.
func (c *cache[T]) shrink() {
	for key, e := range c.kept {
		if c.now().Sub(e.seen) > 24*time.Hour {
			delete(c.kept, key)
		}
	}
	if len(c.kept) >= maxCache {
		c.kept = nil
	}
}
