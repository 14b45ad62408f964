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

	"github.com/sluice-gitops/sluice/internal/limits/lru"
)

const (
	// renewBefore is how long before its expiry a credential is renewed, so that it does not expire while in use.
	// Short-lived credentials are renewed in their last quarter.
	renewBefore = 5 * time.Minute
	// maxTTL is how long a credential is cached at most, so that access that was revoked ends soon.
	maxTTL          = time.Hour
	defaultCapacity = 10_000 // credentials
)

// cacheOptions configure how credentials are cached.
type cacheOptions struct {
	clock    clock.PassiveClock
	capacity int // defaultCapacity when 0, no cache when negative
	counts   *cacheCounts
}

func (i *Identities) cacheOptions() cacheOptions {
	return cacheOptions{clock: i.Clock, capacity: i.CacheCapacity, counts: &i.cacheCounts}
}

type cacheCounts struct{ hits, fetched, failed, evicted, entries atomic.Int64 }

// CacheStats are the counts of the caches for all kinds of credentials together.
type CacheStats struct {
	Hits    int64 // requests answered from the cache
	Fetched int64 // credentials fetched
	Failed  int64 // fetches that failed
	Evicted int64 // entries removed
	Entries int64 // entries now
}

// CacheStats returns the current counts.
func (i *Identities) CacheStats() CacheStats {
	c := &i.cacheCounts
	return CacheStats{Hits: c.hits.Load(), Fetched: c.fetched.Load(), Failed: c.failed.Load(),
		Evicted: c.evicted.Load(), Entries: c.entries.Load()}
}

func (c *cacheCounts) countFetch(err error) {
	if err == nil {
		c.fetched.Add(1)
	} else {
		c.failed.Add(1)
	}
}

// cache holds credentials until shortly before they expire. Concurrent requests for the same credential share one
// fetch.
type cache[T any] struct {
	mu      sync.Mutex
	entries lru.Cache[cacheKey, *entry[T]]
}

// cacheKey is a digest of everything that a credential depends on.
type cacheKey [sha256.Size]byte

// keyOf returns a digest of the parts. Each part is prefixed with its length, so that different lists of parts have
// different keys.
func keyOf(parts ...string) cacheKey {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return cacheKey(h.Sum(nil))
}

type entry[T any] struct {
	lock     chan struct{} // held while the value is read or fetched
	value    T             // guarded by lock
	validTo  time.Time     // guarded by lock
	lastUsed time.Time     // guarded by the cache's mutex
}

// get returns the cached value of key, or fetches it. Failures are not cached.
func (c *cache[T]) get(ctx context.Context, o cacheOptions, key cacheKey, fetch func() (T, time.Time, error)) (T,
	error) {
	var none T
	if o.capacity < 0 {
		value, _, err := fetch()
		o.counts.countFetch(err)
		return value, err
	}
	e := c.entry(key, now(o.clock), cmp.Or(o.capacity, defaultCapacity), o.counts)
	select {
	case e.lock <- struct{}{}:
		defer func() { <-e.lock }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if now(o.clock).Before(e.validTo) {
		o.counts.hits.Add(1)
		return e.value, nil
	}
	value, expires, err := fetch()
	o.counts.countFetch(err)
	if err != nil {
		return none, err
	}
	left := expires.Sub(now(o.clock))
	e.value, e.validTo = value, now(o.clock).Add(min(left-min(renewBefore, left/4), maxTTL))
	return value, nil
}

func (c *cache[T]) entry(key cacheKey, now time.Time, capacity int, counts *cacheCounts) *entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries.Get(key)
	if !ok {
		c.evict(now, capacity, counts)
		e = &entry[T]{lock: make(chan struct{}, 1)}
		c.entries.Add(key, e, 1, lru.Limits{})
		counts.entries.Add(1)
	}
	e.lastUsed = now
	return e
}

// evict removes entries that were not used for maxTTL, and makes room for one entry.
func (c *cache[T]) evict(now time.Time, capacity int, counts *cacheCounts) {
	for {
		key, e, ok := c.entries.Oldest()
		if !ok || c.entries.Len() < capacity && now.Sub(e.lastUsed) <= maxTTL {
			return
		}
		c.entries.Remove(key)
		counts.entries.Add(-1)
		counts.evicted.Add(1)
	}
}

func now(clock clock.PassiveClock) time.Time {
	if clock == nil {
		return time.Now()
	}
	return clock.Now()
}
