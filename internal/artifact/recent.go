package artifact

import "github.com/sluice-gitops/sluice/internal/lru"

// Trees whose contents are in memory are kept as long as there is room: consumers of a source ask for the
// same one, again at every interval. One that is let go is unpacked again from its file.
const (
	keptTrees = 64
	keptBytes = 256 << 20 // of their contents together
)

// recent keeps the trees in memory that were asked for last, by the digests of their artifacts.
type recent struct{ trees lru.Cache[string, *Tree] }

// get returns the tree of an artifact's digest, or nil.
func (r *recent) get(digest string) *Tree {
	tree, _ := r.trees.Get(digest)
	return tree
}

func (r *recent) keep(digest string, tree *Tree) {
	r.trees.Add(digest, tree, tree.Size(), lru.Limits{Count: keptTrees, Size: keptBytes})
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
