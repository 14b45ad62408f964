// Package compose makes trees of parts of others, as an ArtifactGenerator declares them: copies with globs,
// merges of YAML files, contents of archives, and one output for each directory that a pattern discovers. No
// work tree is made, and what is copied is not read.
package compose

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Strategies of a copy.
const (
	Overwrite = extensionsv1beta1.CopyOverwrite // the default: a later file takes the place of an earlier one
	// YAML files are merged into those in their place, as Helm merges values
	Merge   = extensionsv1beta1.CopyMerge
	Extract = extensionsv1beta1.CopyExtract // archives are replaced by what they hold
)

// Copy puts files of a source into the output.
type Copy struct {
	From     string   // @<alias>/<path or glob>
	To       string   // @artifact/<path>; one that ends with / is a directory
	Exclude  []string // globs, relative to the source or to the part of From before its first glob
	Strategy string
}

// Output is what one generated artifact is made of.
type Output struct {
	Name     string
	Copies   []Copy
	Revision string            // @<alias> whose revision the artifact takes; empty: that of its content
	Origin   string            // @<alias> whose revision is noted beside it; may be empty
	Labels   map[string]string // what the path pattern captured
}

// Build returns the tree of the copies, made in their order. Trees are the sources' by alias. What a copy names must be
// there: an output that lacks a part would have that part removed wherever it is applied. The error is a fault.
func Build(copies []Copy, trees map[string]*artifact.Tree) (*artifact.Tree, error) {
	out := &builder{tree: artifact.FromMap(nil)}
	for _, c := range copies {
		if err := out.copy(c, trees); err != nil {
			return nil, fault.New(meta.BuildFailedReason, "cannot copy '%s' to '%s'", c.From, c.To).Because(err).
				WithHint("Correct spec.artifacts[].copy or the source. The artifact before stays")
		}
	}
	if err := out.tree.Check(); err != nil {
		return nil, fault.New(meta.BuildFailedReason, "the copies cannot be one artifact").Because(err).
			WithHint("Exclude or rename one of the files. The artifact before stays")
	}
	return out.tree, nil
}

// builder holds what was copied so far.
type builder struct {
	tree      *artifact.Tree
	filled    bool
	extracted int64 // bytes
}

// add puts a file or directory of a tree at a place.
func (b *builder) add(tree *artifact.Tree, from, to string) (err error) {
	layers := []artifact.Layer{{Tree: b.tree, From: ".", To: "."}, {Tree: tree, From: from, To: to}}
	if !b.filled { // alone, the first keeps its own content
		layers = layers[1:]
	}
	b.tree, err = artifact.Compose(layers...)
	b.filled = true
	return err
}

// isDir tells whether a place is a directory already.
func (b *builder) isDir(to string) bool {
	info, err := b.tree.Lstat(to)
	return err == nil && info.IsDir()
}

// selection is what a copy takes from its source.
type selection struct {
	tree *artifact.Tree // holds what is selected, and only that
	file string         // its name, when From names one file; else what is selected are the tree's entries
	dir  string         // its name, when From names a directory that keeps its name
}

func (b *builder) copy(c Copy, trees map[string]*artifact.Tree) error {
	alias, pattern, err := split(c.From)
	if err != nil {
		return err
	}
	tree := trees[alias]
	if tree == nil {
		return fmt.Errorf("no source has the alias '%s'", alias)
	}
	s, err := choose(tree, pattern, c.Exclude)
	if err != nil {
		return err
	}
	to, isDir, err := place(c.To)
	if err != nil {
		return err
	}
	// As cp does: into a directory if the place is one, else to the place itself.
	target := to
	if name := s.file + s.dir; isDir || b.isDir(to) {
		target = path.Join(to, name)
	}
	switch c.Strategy {
	case "", Overwrite:
		return b.overwrite(s, target)
	case Merge:
		return b.merge(s, target)
	case Extract:
		return b.extract(s, to)
	default:
		return fmt.Errorf("the strategy '%s' is not one of %s, %s and %s", c.Strategy, Overwrite, Merge, Extract)
	}
}

// overwrite puts what is selected at the place.
func (b *builder) overwrite(s *selection, to string) error {
	if s.file != "" {
		return b.add(s.tree, s.file, to)
	}
	return b.add(s.tree, ".", to)
}

// choose finds what a path or glob selects. Symlinks on the way to it are followed, those that are selected are not.
func choose(tree *artifact.Tree, pattern string, exclude []string) (*selection, error) {
	base, glob := pattern, ""
	if strings.ContainsAny(pattern, `*?[{\`) {
		base, glob = doublestar.SplitPattern(pattern)
	}
	base = path.Clean(base)
	info, err := tree.Stat(base)
	if err != nil {
		return nil, missing(base, err)
	}
	s := &selection{}
	if !info.IsDir() {
		if glob != "" {
			return nil, fmt.Errorf("'%s' is not a directory", base)
		}
		s.file = path.Base(base)
		s.tree, err = artifact.Compose(artifact.Layer{Tree: tree, From: base, To: s.file})
	} else {
		s.tree, err = tree.At(base)
		if glob == "" && base != "." {
			s.dir = path.Base(base)
		}
	}
	if err != nil {
		return nil, err
	}
	prefix := base
	if s.file != "" {
		prefix = path.Dir(base)
	}
	s.tree = s.tree.Select(chosen(glob, prefix, exclude))
	if len(s.tree.Root().Entries) == 0 {
		return nil, fmt.Errorf("no file matches '%s'", pattern)
	}
	return s, nil
}

// chosen tells of paths below prefix whether the glob takes them and no exclude leaves them out.
func chosen(glob, prefix string, exclude []string) func(string) bool {
	return func(name string) bool {
		if glob != "" && glob != "**" && !doublestar.MatchUnvalidated(glob, name) {
			return false
		}
		for _, e := range exclude {
			if doublestar.MatchUnvalidated(e, name) || doublestar.MatchUnvalidated(e, path.Join(prefix, name)) ||
				!strings.Contains(e, "/") && doublestar.MatchUnvalidated(e, path.Base(name)) {
				return false
			}
		}
		return true
	}
}

func missing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("'%s' is not in the source", name)
	}
	return err
}

// split takes a source's alias and the path or glob apart.
func split(from string) (alias, pattern string, err error) {
	rest, ok := strings.CutPrefix(from, "@")
	alias, pattern, slash := strings.Cut(rest, "/")
	if !ok || !slash || alias == "" {
		return "", "", fmt.Errorf("'%s' is not of the form @<alias>/<path>", from)
	}
	if pattern = strings.TrimSuffix(pattern, "/"); pattern == "" {
		pattern = "."
	}
	return alias, pattern, nil
}

// place returns the path in the output, and whether it must be a directory.
func place(to string) (name string, isDir bool, err error) {
	rest, ok := strings.CutPrefix(to, "@artifact/")
	name = path.Clean(rest)
	if !ok || !fs.ValidPath(name) {
		return "", false, fmt.Errorf("'%s' is not of the form @artifact/<path>", to)
	}
	return name, name == "." || strings.HasSuffix(rest, "/"), nil
}
