package artifact

import "github.com/sluice-gitops/sluice/internal/lru"

// Trees with contents in memory are cached up to these limits, because the consumers of a source request the same tree
// at every interval. A tree that was evicted is unpacked again from its file.
const (
	keptTrees = 64
	keptBytes = 256 << 20 // total size of their contents
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
	r.trees.Add(treeID{key.dir(), digest}, tree, tree.Size(), lru.Limits{Count: keptTrees, Size: keptBytes})
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
