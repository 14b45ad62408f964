package guard

import "sync"

// Counter counts what owners have open at a time, which is bounded for all of them and for each. The zero value is
// ready.
type Counter struct {
	mu      sync.Mutex
	total   int
	byOwner map[string]int
}

// Open counts something of an owner. It reports false, and counts nothing, if all have maxTotal or the owner has
// maxOwner already. What was counted must be closed.
func (c *Counter) Open(owner string, maxTotal, maxOwner int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= maxTotal || c.byOwner[owner] >= maxOwner {
		return false
	}
	if c.byOwner == nil {
		c.byOwner = map[string]int{}
	}
	c.total++
	c.byOwner[owner]++
	return true
}

// Close ends what Open counted.
func (c *Counter) Close(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.byOwner[owner]--; c.byOwner[owner] == 0 {
		delete(c.byOwner, owner)
	}
}
