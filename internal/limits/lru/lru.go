// Package lru is an in-memory cache that evicts the values which were not used for the longest time.
package lru

import (
	"container/list"
	"sync"
)

// Limits bound the content of a [Cache]. A limit of zero is none.
type Limits struct {
	Count int   // of values
	Size  int64 // of all values together, in the unit of the caller
}

// Cache maps keys to values. Its zero value is ready to use. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	order   list.List // of *entry, the last used one first
	entries map[K]*list.Element
	size    int64
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

// Get returns the value of a key, and marks it as used.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// Add sets the value of a key, and evicts values until the limits are met. A value that is larger than the limit
// evicts all values, including itself.
func (c *Cache[K, V]) Add(key K, value V, size int64, limits Limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.entries[key])
	if c.entries == nil {
		c.entries = map[K]*list.Element{}
	}
	c.entries[key] = c.order.PushFront(&entry[K, V]{key: key, value: value, size: size})
	c.size += size
	for limits.Count > 0 && c.order.Len() > limits.Count || limits.Size > 0 && c.size > limits.Size {
		c.remove(c.order.Back())
	}
}

// Remove removes a key.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.entries[key])
}

// Clear removes all keys.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	c.entries, c.size = nil, 0
}

// Oldest returns the key and the value that were not used for the longest time. It does not mark them as used.
func (c *Cache[K, V]) Oldest() (key K, value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.order.Back()
	if last == nil {
		return key, value, false
	}
	e := last.Value.(*entry[K, V])
	return e.key, e.value, true
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

// Size returns the size of all values together.
func (c *Cache[K, V]) Size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

func (c *Cache[K, V]) remove(element *list.Element) {
	if element == nil {
		return
	}
	e := c.order.Remove(element).(*entry[K, V])
	delete(c.entries, e.key)
	c.size -= e.size
}
