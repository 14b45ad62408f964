package artifact

import (
	"slices"
	"sync"
)

// Trees whose contents are in memory are kept as long as there is room: consumers of a source ask for the same one, again at
// every interval. One that is let go is unpacked again from its file.
const (
	keptTrees = 64
	keptBytes = 256 << 20 // of their contents together
)

// recent keeps the trees in memory that were asked for last. It is safe for concurrent use.
type recent struct {
	mu   sync.Mutex
	kept []keptTree // the one asked for last comes last
}

type keptTree struct {
	digest string
	tree   *Tree
	size   int64
}

// get returns the tree of an artifact's digest, or nil.
func (r *recent) get(digest string) *Tree {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.kept, func(k keptTree) bool { return k.digest == digest })
	if i < 0 {
		return nil
	}
	k := r.kept[i]
	r.kept = append(slices.Delete(r.kept, i, i+1), k)
	return k.tree
}

// keep keeps a tree, and lets go of those that were not asked for longest.
func (r *recent) keep(digest string, tree *Tree) {
	size := tree.Size()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = append(slices.DeleteFunc(r.kept, func(k keptTree) bool { return k.digest == digest }), keptTree{digest, tree, size})
	var sum int64
	first := len(r.kept)
	for first > 0 && len(r.kept)-first < keptTrees && sum+r.kept[first-1].size <= keptBytes {
		first--
		sum += r.kept[first].size
	}
	r.kept = slices.Delete(r.kept, 0, first)
}

// inMemory tells whether the tree holds contents in memory, beside what others hold.
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
