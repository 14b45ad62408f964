// Package artifact holds trees, their deterministic archives, and the content-addressed store that serves them.
// It does not depend on API kinds or controllers, and does not fetch sources.
package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// maxLinks is the maximum number of symlinks that are followed to resolve one name.
const maxLinks = 40

// Content provides the contents of files. It is safe for concurrent use.
type Content interface {
	// Size returns the size in bytes of the content with the ID.
	Size(id string) (int64, error)
	// Read returns the content with the ID; for a symlink, its target.
	Read(id string) ([]byte, error)
}

// BoundedContent is content that says by one read whether a file is small.
type BoundedContent interface {
	Content
	// ReadAtMost is Read, if that needs no more than most bytes of memory. Otherwise it reports false.
	ReadAtMost(id string, most int64) (data []byte, ok bool, err error)
}

// Dir is a directory of a tree. It must not be changed once it is part of a tree, because trees share directories.
type Dir struct {
	ID      string
	Entries []Entry // sorted by name

	wrong string // why it must not be part of an artifact; empty if it may be
	clash string // two names that differ only in case; empty if there are none
	links bool   // whether there is a symlink in it or below it
}

// Entry is a file, a directory or a symlink.
type Entry struct {
	Name string
	Mode fs.FileMode // type bits and 0644 or 0755
	ID   string      // content and mode: equal IDs mean the same file
	Dir  *Dir        // set only for a directory
}

// NewDir returns a directory of the entries. Its ID depends on everything below it.
func NewDir(entries []Entry) *Dir {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	for _, e := range entries {
		fmt.Fprintf(h, "%o %s\x00%s\n", uint32(e.Mode), e.Name, e.ID)
	}
	return &Dir{ID: hex.EncodeToString(h.Sum(nil)), Entries: entries, wrong: wrong(entries), clash: clash(entries),
		links: slices.ContainsFunc(entries, func(e Entry) bool {
			return e.Mode&fs.ModeSymlink != 0 || e.Dir != nil && e.Dir.links
		})}
}

// Tree is a read-only view of a fetched revision, shared by every consumer and safe for concurrent use.
//
// Names follow io/fs: they are slash-separated and relative, and "." is the root. Files that the source ignores are
// absent, so a tree and its archive have the same files. Open, Stat and ReadFile follow symlinks inside the tree, and
// fail with fs.ErrInvalid for a symlink that leads out of it. Lstat and ReadLink do not follow the last symlink of a
// name. Contents are read on demand.
type Tree struct {
	root    *Dir
	content Content
}

var (
	_ fs.ReadFileFS = (*Tree)(nil)
	_ fs.ReadDirFS  = (*Tree)(nil)
	_ fs.ReadLinkFS = (*Tree)(nil)
	_ fs.StatFS     = (*Tree)(nil)
)

// NewTree returns the tree of a root directory.
func NewTree(root *Dir, content Content) *Tree { return &Tree{root, content} }

// With returns a tree with another root directory, whose files have contents of this tree.
func (t *Tree) With(root *Dir) *Tree { return &Tree{root, t.content} }

// Root returns the top directory.
func (t *Tree) Root() *Dir { return t.root }

// ID returns the ID of the entry at name, without reading its content. Equal IDs mean equal modes and contents; the ID
// of a directory covers everything below it. A symlink at name is not followed. If name does not exist, the error is
// fs.ErrNotExist.
func (t *Tree) ID(name string) (string, error) {
	e, err := t.lookup("id", name, false)
	if err != nil {
		return "", err
	}
	return e.ID, nil
}

// Content is like [Tree.ID], but follows symlinks.
func (t *Tree) Content(name string) (string, error) {
	e, err := t.lookup("id", name, true)
	if err != nil {
		return "", err
	}
	return e.ID, nil
}

// Check returns an error if the tree must not become an artifact: if it has names that are not UTF-8, or two entries of
// one name.
func (t *Tree) Check() error {
	if t.root.wrong != "" {
		return errors.New(t.root.wrong)
	}
	return nil
}

// CaseClash names two entries of one directory whose names differ only in case, or returns "". A file system that
// ignores case can hold only one of them.
func (t *Tree) CaseClash() string { return t.root.clash }

// Walk calls visit for every file, symlink and empty directory, in the order of their paths.
func (t *Tree) Walk(visit func(name string, e *Entry) error) error { return walk("", t.root, visit) }

func walk(prefix string, d *Dir, visit func(string, *Entry) error) error {
	for i := range d.Entries {
		e := &d.Entries[i]
		name := prefix + e.Name
		var err error
		if e.Dir != nil && len(e.Dir.Entries) > 0 {
			err = walk(name+"/", e.Dir, visit)
		} else {
			err = visit(name, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) find(name string) (*Entry, bool) {
	i, ok := slices.BinarySearchFunc(d.Entries, name, func(e Entry, n string) int { return strings.Compare(e.Name, n) })
	if !ok {
		return nil, false
	}
	return &d.Entries[i], true
}

// Resolve follows all symlinks in name and returns the resulting name.
func (t *Tree) Resolve(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "resolve", Path: name, Err: fs.ErrInvalid}
	}
	real, _, err := t.resolve(name, true, maxLinks)
	if err != nil {
		return "", &fs.PathError{Op: "resolve", Path: name, Err: err}
	}
	return real, nil
}

// lookup returns the entry at name. It follows symlinks in the path; a symlink at name itself only if follow is true.
func (t *Tree) lookup(op, name string, follow bool) (*Entry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	_, e, err := t.resolve(name, follow, maxLinks)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return e, nil
}

// resolve returns the entry at name, and its name after symlinks are followed.
func (t *Tree) resolve(name string, follow bool, links int) (string, *Entry, error) {
	at := &Entry{Name: ".", Mode: directoryMode, ID: t.root.ID, Dir: t.root}
	if name == "." {
		return name, at, nil
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if at.Dir == nil {
			return "", nil, fs.ErrNotExist
		}
		next, ok := at.Dir.find(part)
		if !ok {
			return "", nil, fs.ErrNotExist
		}
		last := i == len(parts)-1
		if next.Mode&fs.ModeSymlink != 0 && (!last || follow) {
			if links == 0 {
				return "", nil, fmt.Errorf("%w: too many symlinks", fs.ErrInvalid)
			}
			target, err := t.linkTarget(strings.Join(parts[:i], "/"), next)
			if err != nil {
				return "", nil, err
			}
			return t.resolve(path.Join(append([]string{target}, parts[i+1:]...)...), follow, links-1)
		}
		at = next
	}
	return name, at, nil
}

// linkTarget returns the target of a symlink in dir. It returns an error if the target is outside the tree.
func (t *Tree) linkTarget(dir string, link *Entry) (string, error) {
	raw, err := t.content.Read(link.ID)
	if err != nil {
		return "", err
	}
	target := path.Join(dir, string(raw))
	if path.IsAbs(string(raw)) || !fs.ValidPath(target) {
		return "", fmt.Errorf("%w: symlink to %q leads out of the source", fs.ErrInvalid, raw)
	}
	return target, nil
}

// Open implements fs.FS.
func (t *Tree) Open(name string) (fs.File, error) {
	e, err := t.lookup("open", name, true)
	if err != nil {
		return nil, err
	}
	if e.Dir != nil {
		return &openDir{info: t.info(name, e), entries: t.dirEntries(e.Dir)}, nil
	}
	b, err := t.content.Read(e.ID)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{Reader: bytes.NewReader(b), info: t.info(name, e)}, nil
}

// ReadFile implements fs.ReadFileFS.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	e, err := t.lookup("read", name, true)
	if err != nil {
		return nil, err
	}
	if e.Dir != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%w: is a directory", fs.ErrInvalid)}
	}
	b, err := t.content.Read(e.ID)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return bytes.Clone(b), nil
}

// ReadDir implements fs.ReadDirFS.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := t.lookup("readdir", name, true)
	if err != nil {
		return nil, err
	}
	if e.Dir == nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fmt.Errorf("%w: not a directory", fs.ErrInvalid)}
	}
	return t.dirEntries(e.Dir), nil
}

// ReadLink implements fs.ReadLinkFS.
func (t *Tree) ReadLink(name string) (string, error) {
	e, err := t.lookup("readlink", name, false)
	if err != nil {
		return "", err
	}
	if e.Mode&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	b, err := t.content.Read(e.ID)
	return string(b), err
}

// Lstat implements fs.ReadLinkFS.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	e, err := t.lookup("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return t.info(name, e), nil
}

// Stat implements fs.StatFS.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	e, err := t.lookup("stat", name, true)
	if err != nil {
		return nil, err
	}
	return t.info(name, e), nil
}

func (t *Tree) info(name string, e *Entry) info {
	return info{name: path.Base(name), entry: e, tree: t}
}

func (t *Tree) dirEntries(d *Dir) []fs.DirEntry {
	out := make([]fs.DirEntry, len(d.Entries))
	for i := range d.Entries {
		out[i] = fs.FileInfoToDirEntry(t.info(d.Entries[i].Name, &d.Entries[i]))
	}
	return out
}

// info describes an entry. Its size is read on demand.
type info struct {
	name  string
	entry *Entry
	tree  *Tree
}

func (i info) Name() string       { return i.name }
func (i info) Mode() fs.FileMode  { return i.entry.Mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.entry.Dir != nil }
func (i info) Sys() any           { return nil }
func (i info) Size() int64 {
	if i.entry.Dir != nil {
		return 0
	}
	n, err := i.tree.content.Size(i.entry.ID)
	if err != nil {
		return 0 // reading the file returns the error
	}
	return n
}

type openFile struct {
	*bytes.Reader
	info info
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type openDir struct {
	info    info
	entries []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		all := d.entries
		d.entries = nil
		return all, nil
	}
	if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	some := d.entries[:n]
	d.entries = d.entries[n:]
	return some, nil
}
