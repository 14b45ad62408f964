package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// early is how long before its end a credential is renewed, so that none ends on its way; short-lived
	// ones are renewed in their last quarter.
	early = 5 * time.Minute
	// maxKeep is how long a credential is kept although it lives longer, so that it does not outlive by much
	// the right to get it.
	maxKeep  = time.Hour
	maxCache = 10_000 // credentials
)

// keeping says how credentials are kept.
type keeping struct {
	clock clock.PassiveClock
	most  int // maxCache when 0, none when negative
	uses  *uses
}

func (i *Identities) keeping() keeping { return keeping{i.Clock, i.Keep, &i.uses} }

// uses counts what became of questions for credentials.
type uses struct{ hits, got, refused, evicted, kept atomic.Int64 }

// CacheStats counts what became of questions for credentials, and tells how many are kept.
type CacheStats struct{ Hits, Got, Refused, Evicted, Kept int64 }

// CacheStats returns the counts so far, of all kinds of credentials together.
func (i *Identities) CacheStats() CacheStats {
	u := &i.uses
	return CacheStats{u.hits.Load(), u.got.Load(), u.refused.Load(), u.evicted.Load(), u.kept.Load()}
}

// count notes what came of asking for a credential.
func (u *uses) count(err error) {
	if err == nil {
		u.got.Add(1)
	} else {
		u.refused.Add(1)
	}
}

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
		k.uses.count(err)
		return value, err
	}
	e := c.entry(key, now(clock), cmp.Or(k.most, maxCache), k.uses)
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if now(clock).Before(e.until) {
		k.uses.hits.Add(1)
		return e.value, nil
	}
	value, expires, err := fetch()
	k.uses.count(err)
	if err != nil {
		return none, err
	}
	left := expires.Sub(now(clock))
	e.value, e.until = value, now(clock).Add(min(left-min(early, left/4), maxKeep))
	return value, nil
}

func (c *cache[T]) entry(key cacheKey, now time.Time, most int, uses *uses) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.kept[key]
	if e == nil {
		c.shrink(now, most, uses)
		if c.kept == nil {
			c.kept = map[cacheKey]*entry[T]{}
		}
		e = &entry[T]{turn: make(chan struct{}, 1)}
		c.kept[key] = e
		uses.kept.Add(1)
	}
	e.seen = now
	return e
}

// shrink forgets what nobody asked for in the time that it is kept, and what was asked for the longest ago
// when that does not do.
func (c *cache[T]) shrink(now time.Time, most int, uses *uses) {
	evict := func(key cacheKey) {
		delete(c.kept, key)
		uses.kept.Add(-1)
		uses.evicted.Add(1)
	}
	var oldest *cacheKey
	for key, e := range c.kept {
		if now.Sub(e.seen) > maxKeep {
			evict(key)
		} else if oldest == nil || e.seen.Before(c.kept[*oldest].seen) {
			oldest = &key
		}
	}
	if len(c.kept) >= most && oldest != nil {
		evict(*oldest)
	}
}

func now(clock clock.PassiveClock) time.Time {
	if clock == nil {
		return time.Now()
	}
	return clock.Now()
}
