package artifact

import (
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
)

// Trees with contents in memory are cached up to these limits, because the consumers of a source request the same tree
// at every interval. A tree that was evicted is unpacked again from its file.
const (
	keptTrees = 64
	keptBytes = 256 << 20 // total size of their contents, at most a quarter of the memory budget
)

// recent caches the most recently used trees in memory, by the objects and the digests of their artifacts. A digest
// alone gives access to nothing, because whoever may write the status of an object can name any digest.
type recent struct {
	trees lru.Cache[treeID, *Tree]
}

// treeID identifies the artifact of an object.
type treeID struct{ dir, digest string }

// get returns the tree of the object's artifact with the digest, or nil.
func (r *recent) get(key Key, digest string) *Tree {
	tree, _ := r.trees.Get(treeID{key.dir(), digest})
	return tree
}

func (r *recent) keep(key Key, digest string, tree *Tree) {
	r.trees.Add(treeID{key.dir(), digest}, tree, tree.memorySize(), lru.Limits{Count: keptTrees, Size: keptMemory()})
}

func keptMemory() int64 { return min(keptBytes, guard.Memory().Total()/4) }

// clear removes all trees.
func (r *recent) clear() {
	for {
		id, _, ok := r.trees.Oldest()
		if !ok {
			return
		}
		r.trees.Remove(id)
	}
}

// memorySize returns the memory that the tree needs, in bytes, as estimated.
func (t *Tree) memorySize() (sum int64) {
	_ = t.Walk(func(string, *Entry) error { // never fails
		sum += entryBytes
		return nil
	})
	return sum + t.Size()
}

// inMemory reports whether at least some of the contents of the tree are in memory.
func (t *Tree) inMemory() bool {
	switch c := t.content.(type) {
	case *memory:
		return true
	case owners:
		for _, owner := range c {
			if _, ok := owner.(*memory); ok {
				return true
			}
		}
	}
	return false
}
