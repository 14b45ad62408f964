// Package lru keeps the values that were used last in memory, within bounds of their number and size.
package lru

import (
	"slices"
	"sync"
)

// Bounds of what is kept.
type Bounds struct {
	Count int   // of values; none when 0
	Bytes int64 // of all values together
}

// Cache keeps values by key. Its zero value is ready, and it is safe for concurrent use.
type Cache[V any] struct {
	mu   sync.Mutex
	kept []entry[V] // the one used last comes last
}

type entry[V any] struct {
	key   string
	value V
	size  int64
}

// Get returns the value of a key, if it is kept.
func (c *Cache[V]) Get(key string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.index(key)
	if i < 0 {
		var none V
		return none, false
	}
	e := c.kept[i]
	c.kept = append(slices.Delete(c.kept, i, i+1), e)
	return e.value, true
}

// Keep keeps a value of some bytes, and lets go of those that were not used for longest; of all, if it is
// beyond the bounds alone.
func (c *Cache[V]) Keep(key string, value V, size int64, most Bounds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(key); i >= 0 {
		c.kept = slices.Delete(c.kept, i, i+1)
	}
	c.kept = append(c.kept, entry[V]{key, value, size})
	first, sum := len(c.kept), int64(0)
	for first > 0 && (most.Count == 0 || len(c.kept)-first < most.Count) && sum+c.kept[first-1].size <= most.Bytes {
		first--
		sum += c.kept[first].size
	}
	c.kept = slices.Delete(c.kept, 0, first)
}

// Len tells how many values are kept.
func (c *Cache[V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.kept)
}

func (c *Cache[V]) index(key string) int {
	return slices.IndexFunc(c.kept, func(e entry[V]) bool { return e.key == key })
}
