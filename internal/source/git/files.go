package git

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// WriterPrefix is the prefix of owners whose views write. These owners are not sources, and forget their
// views themselves.
const WriterPrefix = "writer-"

// Files are the files of a commit, without ignore rules.
type Files struct {
	Root plumbing.Hash // the root directory
	from *repository
}

// File is an entry of a directory: a regular file, a directory, or another type such as a symbolic link.
type File struct {
	Name    string
	Dir     bool
	Regular bool
	Hash    plumbing.Hash // of the content
}

// Files returns the files of a commit that was fetched or created. The error is a fault.
func (v *View) Files(commit plumbing.Hash) (*Files, error) {
	r := v.created[commit]
	if r == nil {
		var err error
		if r, err = v.repository(Revision{Commit: commit.String()}); err != nil {
			return nil, err
		}
	}
	root, err := r.rootTree(commit)
	if err != nil {
		return nil, gitFault("cannot read commit %s", commit).Because(err)
	}
	return &Files{Root: root, from: r}, nil
}

// List returns the entries of a directory, at most most of them. The error is [ErrTooManyEntries] for a directory with
// more.
func (f *Files) List(dir plumbing.Hash, most int) ([]File, error) {
	kind, data, err := f.from.objects.Read(dir)
	if err != nil {
		return nil, err
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is not a directory", dir)
	}
	listing, err := parseTree(data, most)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(listing))
	for i, e := range listing {
		files[i] = File{Name: e.name, Dir: e.mode == fs.ModeDir, Regular: e.mode.IsRegular(), Hash: e.hash}
	}
	return files, nil
}

// Read returns the content of a file; nil if it has more than limit bytes.
func (f *Files) Read(file plumbing.Hash, limit int64) ([]byte, error) {
	if size, err := f.from.objects.Size(file); err != nil || size > limit {
		return nil, err
	}
	_, data, err := f.from.objects.Read(file)
	return data, err
}

// Parents returns the parents of a commit in the mirror, which may not contain the parents.
func (v *View) Parents(commit plumbing.Hash) ([]plumbing.Hash, error) {
	r, err := v.repository(Revision{Commit: commit.String()})
	if err != nil {
		return nil, err
	}
	return r.parents(commit)
}

// Lookup lists the references of the remote, and returns the hash of the one with the full name; zero if there is none.
// The error is a fault.
func (v *View) Lookup(ctx context.Context, name string) (plumbing.Hash, error) {
	unlock, err := v.lock(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer unlock()
	remote := v.remote
	remote.Scratch = v.mirror.dir
	u := &update{mirror: v.mirror, ctx: ctx, remote: remote, owner: v.owner}
	defer u.disconnect()
	if err := u.dial(); err != nil {
		return plumbing.ZeroHash, err
	}
	return u.conn.Refs.References[name], nil
}

// Find returns the entry at a slash-separated path. It reports false if there is none.
func (f *Files) Find(path string) (File, bool, error) {
	found := File{Dir: true, Hash: f.Root}
	for _, name := range strings.Split(path, "/") {
		if !found.Dir {
			return File{}, false, nil
		}
		entries, err := f.List(found.Hash, MaxEntries())
		if err != nil {
			return File{}, false, gitFault("cannot read directory '%s'", path).Because(err)
		}
		at := slices.IndexFunc(entries, func(e File) bool { return e.Name == name })
		if at < 0 {
			return File{}, false, nil
		}
		found = entries[at]
	}
	return found, true, nil
}
