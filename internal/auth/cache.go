package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// early is how long before its end a credential is renewed, so that none ends on its way; short-lived ones are renewed in their last quarter.
	early = 5 * time.Minute
	// maxKeep is how long a credential is kept although it lives longer, so that it does not outlive by much the right to get it.
	maxKeep  = time.Hour
	maxCache = 10_000 // credentials
)

// keeping says how credentials are kept.
type keeping struct {
	clock clock.PassiveClock
	most  int // maxCache when 0, none when negative
}

func (i *Identities) keeping() keeping { return keeping{i.Clock, i.Keep} }

// cache keeps credentials until shortly before they expire. Who asks for what another is getting waits for it.
type cache[T any] struct {
	mu   sync.Mutex
	kept map[cacheKey]*entry[T]
}

// cacheKey stands for everything that a credential depends on.
type cacheKey [sha256.Size]byte

// keyOf digests the parts. Each goes in with its length, so that no two lists of them meet in one key.
func keyOf(parts ...string) cacheKey {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return cacheKey(h.Sum(nil))
}

type entry[T any] struct {
	turn  chan struct{} // held by the one who gets
	value T
	until time.Time // guarded by turn, as value is
	seen  time.Time // guarded by the cache's mutex
}

// get returns what is kept under key, or fetches it. Failures are not kept.
func (c *cache[T]) get(ctx context.Context, k keeping, key cacheKey, fetch func() (T, time.Time, error)) (T, error) {
	var none T
	clock := k.clock
	if k.most < 0 {
		value, _, err := fetch()
		return value, err
	}
	e := c.entry(key, now(clock), cmp.Or(k.most, maxCache))
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if now(clock).Before(e.until) {
		return e.value, nil
	}
	value, expires, err := fetch()
	if err != nil {
		return none, err
	}
	left := expires.Sub(now(clock))
	e.value, e.until = value, now(clock).Add(min(left-min(early, left/4), maxKeep))
	return value, nil
}

func (c *cache[T]) entry(key cacheKey, now time.Time, most int) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.kept[key]
	if e == nil {
		c.shrink(now, most)
		if c.kept == nil {
			c.kept = map[cacheKey]*entry[T]{}
		}
		e = &entry[T]{turn: make(chan struct{}, 1)}
		c.kept[key] = e
	}
	e.seen = now
	return e
}

// shrink forgets what nobody asked for in the time that it is kept, and what was asked for the longest ago when that does not do.
func (c *cache[T]) shrink(now time.Time, most int) {
	var oldest *cacheKey
	for key, e := range c.kept {
		if now.Sub(e.seen) > maxKeep {
			delete(c.kept, key)
		} else if oldest == nil || e.seen.Before(c.kept[*oldest].seen) {
			oldest = &key
		}
	}
	if len(c.kept) >= most && oldest != nil {
		delete(c.kept, *oldest)
	}
}

func now(clock clock.PassiveClock) time.Time {
	if clock == nil {
		return time.Now()
	}
	return clock.Now()
}
