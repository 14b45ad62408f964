package artifact

import (
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
)

// Layer is a part of a tree and its place in a composed tree.
type Layer struct {
	Tree *Tree
	From string // a file or directory of the tree; "." is all of it
	To   string // path in the result; "." puts the entries of a directory at the root
}

// Compose returns a tree of the entries of all layers. Directories are merged. If two layers have a file, or a file
// and a directory, at the same path, the later layer wins. Symlinks in the path From are followed, and only their
// targets are read; other symlinks are copied unchanged. If From does not exist, the error is fs.ErrNotExist.
func Compose(layers ...Layer) (*Tree, error) {
	root := NewDir(nil)
	var parts []*Tree
	for _, l := range layers {
		e, err := l.Tree.lookup("compose", l.From, true)
		if err != nil {
			return nil, err
		}
		if !fs.ValidPath(l.To) || l.To == "." && e.Dir == nil {
			return nil, fmt.Errorf("%w: %q is not a valid destination for %q", fs.ErrInvalid, l.To, l.From)
		}
		added := e.Dir
		if l.To != "." {
			added = wrap(strings.Split(l.To, "/"), *e)
		}
		root = merge(root, added)
		parts = append(parts, NewTree(added, l.Tree.content))
	}
	return NewTree(root, join(parts)), nil
}

// wrap returns the entry at a path of nested directories.
func wrap(to []string, e Entry) *Dir {
	e.Name = to[len(to)-1]
	d := NewDir([]Entry{e})
	for _, name := range slices.Backward(to[:len(to)-1]) {
		d = NewDir([]Entry{{Name: name, Mode: directoryMode, ID: d.ID, Dir: d}})
	}
	return d
}

// merge returns the entries of both directories. Subdirectories that exist in only one of them are not copied.
func merge(below, above *Dir) *Dir {
	if len(below.Entries) == 0 {
		return above
	}
	entries := make([]Entry, 0, len(below.Entries)+len(above.Entries))
	for _, e := range below.Entries {
		if over, ok := above.find(e.Name); !ok {
			entries = append(entries, e)
		} else if e.Dir != nil && over.Dir != nil {
			d := merge(e.Dir, over.Dir)
			entries = append(entries, Entry{Name: e.Name, Mode: e.Mode, ID: d.ID, Dir: d})
		}
	}
	for _, e := range above.Entries {
		if under, ok := below.find(e.Name); !ok || under.Dir == nil || e.Dir == nil {
			entries = append(entries, e)
		}
	}
	return NewDir(entries)
}

// join returns the content of all parts. If the parts share their content, it is that; else it maps each ID to the
// content of a part.
func join(parts []*Tree) Content {
	others := slices.IndexFunc(parts, func(p *Tree) bool { return !sameContent(p.content, parts[0].content) })
	if len(parts) > 0 && others < 0 {
		return parts[0].content
	}
	owned := owners{}
	for _, p := range parts {
		_ = p.Walk(func(_ string, e *Entry) error { // never fails
			if inner, ok := p.content.(owners); ok {
				owned[e.ID] = inner[e.ID]
			} else {
				owned[e.ID] = p.content
			}
			return nil
		})
	}
	return owned
}

// sameContent reports whether both are the same. It returns false for types that are not comparable.
func sameContent(a, b Content) bool { return reflect.TypeOf(a).Comparable() && a == b }

// owners maps IDs to the Content that has them. A part is never asked for an ID that it does not have, because a
// mirror would treat that as damage.
type owners map[string]Content

func (o owners) Size(id string) (int64, error) {
	c, ok := o[id]
	if !ok {
		return 0, unknown(id)
	}
	return c.Size(id)
}

func (o owners) Read(id string) ([]byte, error) {
	c, ok := o[id]
	if !ok {
		return nil, unknown(id)
	}
	return c.Read(id)
}

// Select returns a tree of the files for whose paths keep returns true. A directory without any files is asked for too.
// Unchanged directories are not copied.
func (t *Tree) Select(keep func(name string, isDir bool) bool) *Tree {
	return NewTree(t.root.keep("", keep), t.content)
}

func (d *Dir) keep(prefix string, keep func(string, bool) bool) *Dir {
	entries, same := make([]Entry, 0, len(d.Entries)), true
	for _, e := range d.Entries {
		name := prefix + e.Name
		if e.Dir == nil {
			if keep(name, false) {
				entries = append(entries, e)
			} else {
				same = false
			}
			continue
		}
		sub := e.Dir.keep(name+"/", keep)
		isKept := len(sub.Entries) > 0 || keep(name, true)
		same = same && isKept && sub == e.Dir
		if isKept {
			entries = append(entries, Entry{Name: e.Name, Mode: e.Mode, ID: sub.ID, Dir: sub})
		}
	}
	if same {
		return d
	}
	return NewDir(entries)
}

// At returns the tree below a directory. Symlinks in the path are followed.
func (t *Tree) At(dir string) (*Tree, error) {
	e, err := t.lookup("open", path.Clean(dir), true)
	if err != nil {
		return nil, err
	}
	if e.Dir == nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fmt.Errorf("%w: not a directory", fs.ErrInvalid)}
	}
	return NewTree(e.Dir, t.content), nil
}
