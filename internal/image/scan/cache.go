package scan

import (
	"sync"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	maxCached  = 128 << 20 // bytes of the caches of all scanners
	cacheStep  = 16 << 10  // bytes that a cache takes at a time
	entryBytes = 100       // memory of an entry, besides its finding
)

// shares divides the memory for caches among namespaces.
var shares = sync.OnceValue(func() *guard.Shares {
	return guard.NewShares(min(maxCached, guard.Memory().Total()/8))
})

// cache has findings by the content of files and directories. Its memory is given back when it is no longer used.
type cache struct {
	found map[cacheKey]*finding
	free  int64 // bytes that were taken and are not used yet
	full  bool  // a finding was not added
}

// add adds a finding, unless the owner has too many already.
func (c *cache) add(owner string, key cacheKey, f *finding) {
	size := entryBytes + f.memory()
	if step := max(size, cacheStep); c.free < size {
		if !guard.TakeWhile(shares(), owner, step, c) {
			c.full = true
			return
		}
		c.free += step
	}
	c.free -= size
	c.found[key] = f
}

// memory estimates the memory of a finding in bytes.
func (f *finding) memory() int64 {
	if f == emptyFinding {
		return 0
	}
	n := 160 + 8*len(f.found)
	for _, p := range f.policies {
		n += 32 + len(p)
	}
	for _, p := range f.problems {
		n += 128 + len(p.File) + len(p.Message) + len(p.Policy)
	}
	return int64(n)
}
