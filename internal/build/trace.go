package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Trace records everything that a build read from its tree. It holds digests, not contents.
type Trace struct {
	root  string // ID of the root of the tree
	looks map[look]string
}

// look is a query about a name in the tree.
type look struct {
	what byte
	name string
}

const (
	lookContent = 'c' // the content of the file
	lookKind    = 'k' // whether it is a file, a directory, or absent
	lookListing = 'l' // the entries of the directory
	lookTarget  = 't' // the name after symlinks are resolved

	kindAbsent = "absent"
	kindFile   = "file"
	kindDir    = "dir"
)

func newTrace(tree *artifact.Tree) *Trace {
	return &Trace{root: tree.Root().ID, looks: map[look]string{}}
}

// Unchanged reports whether a build of the tree would read the same input as the recorded build, and therefore have the
// same result. It compares digests and reads no file contents.
func (t *Trace) Unchanged(tree *artifact.Tree) bool {
	if t.root == tree.Root().ID {
		return true
	}
	for l, was := range t.looks {
		if answer(tree, l) != was {
			return false
		}
	}
	return true
}

// answer returns the result of a query on a tree.
func answer(tree *artifact.Tree, l look) string {
	switch l.what {
	case lookContent:
		id, err := tree.Content(l.name)
		if err != nil {
			return kindAbsent
		}
		return id
	case lookListing:
		entries, err := tree.ReadDir(l.name)
		if err != nil {
			return kindAbsent
		}
		h := sha256.New()
		for _, e := range entries {
			fmt.Fprintf(h, "%s %v\n", e.Name(), e.Type())
		}
		return hex.EncodeToString(h.Sum(nil))
	case lookTarget:
		real, err := tree.Resolve(l.name)
		if err != nil {
			return kindAbsent
		}
		return real
	default:
		info, err := tree.Stat(l.name)
		switch {
		case err != nil:
			return kindAbsent
		case info.IsDir():
			return kindDir
		default:
			return kindFile
		}
	}
}

// HasRead reports whether the build read the content of a file of the tree.
func (t *Trace) HasRead(name string) bool {
	_, ok := t.looks[look{lookContent, name}]
	return ok
}

func (t *Trace) ask(tree *artifact.Tree, what byte, name string) string {
	l := look{what, name}
	if _, ok := t.looks[l]; !ok {
		t.looks[l] = answer(tree, l)
	}
	return t.looks[l]
}

func (t *Trace) content(tree *artifact.Tree, name string)     { t.ask(tree, lookContent, name) }
func (t *Trace) kind(tree *artifact.Tree, name string) string { return t.ask(tree, lookKind, name) }

func (t *Trace) resolve(tree *artifact.Tree, name string) (string, error) {
	t.ask(tree, lookTarget, name)
	return tree.Resolve(name)
}

func (t *Trace) listing(tree *artifact.Tree, name string) ([]string, error) {
	t.ask(tree, lookListing, name)
	entries, err := tree.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
