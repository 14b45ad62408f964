package git

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/go-git/go-git/v5/plumbing"
)

// WriterPrefix begins the names of owners of views that write. They forget their views by themselves, and are
// no sources.
const WriterPrefix = "writer-"

// Files are those of a commit, read where they lie, with no rules that leave any out.
type Files struct {
	Root plumbing.Hash // the top directory
	from *repository
}

// File is an entry of a directory: a file, another directory, or neither of both, such as a symbolic link.
type File struct {
	Name    string
	Dir     bool
	Regular bool
	Hash    plumbing.Hash // of the content: equal ones are equal
}

// Files returns those of a commit that the mirror holds, or that was made in it. The error is a fault.
func (v *View) Files(commit plumbing.Hash) (*Files, error) {
	r := v.made[commit]
	if r == nil {
		var err error
		if r, err = v.repository(Revision{Commit: commit.String()}); err != nil {
			return nil, err
		}
	}
	root, err := r.rootTree(commit)
	if err != nil {
		return nil, gitFault("commit %s cannot be read", commit).Because(err)
	}
	return &Files{Root: root, from: r}, nil
}

// List lists a directory.
func (f *Files) List(dir plumbing.Hash) ([]File, error) {
	kind, data, err := f.from.objects.Read(dir)
	if err != nil {
		return nil, err
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is no directory", dir)
	}
	listing, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(listing))
	for i, e := range listing {
		files[i] = File{Name: e.name, Dir: e.mode == fs.ModeDir, Regular: e.mode.IsRegular(), Hash: e.hash}
	}
	return files, nil
}

// Read returns the content of a file; nothing of one that has more bytes than most.
func (f *Files) Read(file plumbing.Hash, most int64) ([]byte, error) {
	if size, err := f.from.objects.Size(file); err != nil || size > most {
		return nil, err
	}
	_, data, err := f.from.objects.Read(file)
	return data, err
}

// Parents returns those of a commit that the mirror holds; it need not hold them.
func (v *View) Parents(commit plumbing.Hash) ([]plumbing.Hash, error) {
	r, err := v.repository(Revision{Commit: commit.String()})
	if err != nil {
		return nil, err
	}
	return r.parents(commit)
}

// Lookup asks the remote what a reference leads to, by its full name; zero if there is none. The error is a fault.
func (v *View) Lookup(ctx context.Context, name string) (plumbing.Hash, error) {
	done, err := v.begin(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer done()
	remote := v.remote
	remote.Scratch = v.mirror.dir
	u := &update{mirror: v.mirror, ctx: ctx, remote: remote, owner: v.owner}
	defer u.hangUp()
	if err := u.dial(); err != nil {
		return plumbing.ZeroHash, err
	}
	return u.conn.Refs.References[name], nil
}
