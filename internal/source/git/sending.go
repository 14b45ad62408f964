package git

import (
	"context"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
)

// maxUnpushed is the maximum number of commits that are searched for one that the remote has.
const maxUnpushed = 1000

// collector finds the objects that a remote does not have.
type collector struct {
	ctx   context.Context
	known map[plumbing.Hash]bool // commits that the remote has
	whole bool                   // the remote accepts no thin packs

	from    *repository // of the current commit
	objects []packstore.Object
	sent    map[plumbing.Hash]role
}

// role is the role of an object in the pack. A base is never a delta, which prevents cycles.
type role int

const (
	plain role = iota + 1
	delta
	base // possibly not in the pack
)

// history adds the objects that the remote needs for a commit: those of the commit and of its ancestors that the remote
// does not have.
func (c *collector) history(r *repository, commit plumbing.Hash) error {
	c.from = r
	todo := []plumbing.Hash{commit}
	for n := 0; len(todo) > 0; n++ {
		h := todo[0]
		todo = todo[1:]
		if c.known[h] || c.has(h) {
			continue
		}
		if n == maxUnpushed {
			return fmt.Errorf("more than %d commits are missing on the remote", maxUnpushed)
		}
		parents, err := c.commit(h)
		if err != nil {
			return err
		}
		todo = append(todo, parents...)
	}
	return nil
}

func (c *collector) commit(h plumbing.Hash) (parents []plumbing.Hash, err error) {
	parents, err = c.from.parents(h)
	if err != nil {
		return nil, err
	}
	_, data, err := c.from.objects.Read(h)
	if err != nil {
		return nil, err
	}
	c.send(packstore.Object{Kind: plumbing.CommitObject, Data: data}, h)
	tree, err := c.from.rootTree(h)
	if err != nil {
		return nil, err
	}
	var before plumbing.Hash
	if len(parents) > 0 {
		if before, err = c.from.rootTree(parents[0]); err != nil {
			return nil, err
		}
	}
	return parents, c.tree(tree, before)
}

// tree adds the objects of a directory that differ from before, the directory of the parent commit; zero if there is
// none.
func (c *collector) tree(tree, before plumbing.Hash) error {
	if tree == before || c.has(tree) {
		return nil
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if err := c.object(plumbing.TreeObject, tree, before); err != nil {
		return err
	}
	entries, err := c.from.entries(tree)
	if err != nil {
		return err
	}
	previous := map[string]entry{}
	if !before.IsZero() {
		old, err := c.from.entries(before)
		if err != nil {
			return err
		}
		for _, e := range old {
			previous[e.name] = e
		}
	}
	for _, e := range entries {
		old := previous[e.name]
		switch {
		case old.hash == e.hash || e.mode == modeSubmodule:
		case isDirectory(e):
			if !isDirectory(old) {
				old.hash = plumbing.ZeroHash
			}
			err = c.tree(e.hash, old.hash)
		default:
			if isDirectory(old) || old.mode == modeSubmodule {
				old.hash = plumbing.ZeroHash
			}
			err = c.object(plumbing.BlobObject, e.hash, old.hash)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// object adds an object, as a delta to the object from if that is shorter.
func (c *collector) object(kind plumbing.ObjectType, h, from plumbing.Hash) error {
	if c.has(h) {
		return nil
	}
	_, data, err := c.from.objects.Read(h)
	if err != nil {
		return err
	}
	o := packstore.Object{Kind: kind, Data: data}
	if !c.whole && !from.IsZero() && c.sent[from] != delta && c.sent[h] != base {
		_, old, err := c.from.objects.Read(from)
		if err != nil {
			return err
		}
		if d := packstore.Delta(old, data); d != nil {
			o.Data, o.Base = d, from
		}
	}
	c.send(o, h)
	return nil
}

func (c *collector) send(o packstore.Object, h plumbing.Hash) {
	c.sent[h] = plain
	if !o.Base.IsZero() {
		c.sent[h] = delta
		if !c.has(o.Base) {
			c.sent[o.Base] = base
		}
	}
	c.objects = append(c.objects, o)
}

// has reports whether the pack contains an object.
func (c *collector) has(h plumbing.Hash) bool { return c.sent[h] == plain || c.sent[h] == delta }

// parents returns the parents of a commit.
func (r *repository) parents(commit plumbing.Hash) ([]plumbing.Hash, error) {
	kind, data, err := r.objects.Read(commit)
	if err != nil {
		return nil, err
	}
	if kind != plumbing.CommitObject {
		return nil, fmt.Errorf("object %s is not a commit", commit)
	}
	return parentsOf(data), nil
}

// descends reports whether a commit is a descendant of another one, as far as the commits are in the repository.
func (r *repository) descends(commit, from plumbing.Hash) bool {
	todo, seen := []plumbing.Hash{commit}, map[plumbing.Hash]bool{}
	for len(todo) > 0 && len(seen) < maxUnpushed {
		h := todo[0]
		todo = todo[1:]
		if h == from {
			return true
		}
		if seen[h] {
			continue
		}
		seen[h] = true
		parents, err := r.parents(h)
		if err != nil {
			continue // it was not fetched
		}
		todo = append(todo, parents...)
	}
	return false
}
