package artifact

import "io/fs"

// WithoutLinks returns the tree without its symlinks, as Flux makes artifacts. Directories stay, also if they become
// empty. Unchanged directories are not copied.
func (t *Tree) WithoutLinks() *Tree {
	if !t.root.links {
		return t
	}
	return NewTree(t.root.withoutLinks(), t.content)
}

func (d *Dir) withoutLinks() *Dir {
	if !d.links {
		return d
	}
	entries := make([]Entry, 0, len(d.Entries))
	for _, e := range d.Entries {
		if e.Mode&fs.ModeSymlink != 0 {
			continue
		}
		if e.Dir != nil {
			e.Dir = e.Dir.withoutLinks()
			e.ID = e.Dir.ID
		}
		entries = append(entries, e)
	}
	return NewDir(entries)
}
