// Package preview computes what a change of a repository would do to a cluster before it lands: it builds the
// Kustomizations and HelmReleases that the change reaches as their controllers would, compares the result with the
// cluster by dry-run, and classifies it. It changes nothing and never prints.
package preview

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

const (
	maxTreeDepth = 256
	maxChanged   = 100_000 // changed files that are listed
)

// Snapshot is the files of a repository at one revision.
type Snapshot struct {
	Name       string // of the revision, for people
	Revision   string // commit; empty for a directory
	Author     string // of the commit
	Message    string // of the commit
	subject    string // first paragraph of the message, on one line
	submodules []string
	tree       *artifact.Tree            // all files
	filtered   map[string]*artifact.Tree // as sources have them, by their rules
}

// Directory returns the snapshot of a local directory.
func Directory(dir string) (*Snapshot, error) {
	everything := "!*"
	rules, err := ignore.New(&everything)
	if err != nil {
		return nil, err
	}
	tree, err := oci.ReadLocal(dir, rules, false)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	return newSnapshot(dir, tree), nil
}

func newSnapshot(name string, tree *artifact.Tree) *Snapshot {
	return &Snapshot{Name: name, tree: tree, filtered: map[string]*artifact.Tree{}}
}

// checkout is which files of a repository a source has.
type checkout struct {
	dir    string   // that is the root of the source; the whole repository when empty
	sparse []string // spec.sparseCheckout
	ignore *string  // spec.ignore
}

// Tree returns the files as a source stores them.
func (s *Snapshot) Tree(c checkout) (*artifact.Tree, error) {
	rules, err := ignore.New(c.ignore)
	if err != nil {
		return nil, err
	}
	only, err := git.Directories(c.sparse)
	if err != nil {
		return nil, err
	}
	key := strings.Join(append([]string{rules.ID(), c.dir}, only...), "\x00")
	if t := s.filtered[key]; t != nil {
		return t, nil
	}
	root := s.tree.Root()
	if root, err = below(root, c.dir); err != nil {
		return nil, err
	}
	for _, dir := range only {
		if _, err := below(root, dir); err != nil {
			return nil, fmt.Errorf("directory '%s' of spec.sparseCheckout does not exist", dir)
		}
	}
	dir, err := s.filter(root, c.dir, place{rules: rules, only: only})
	if err != nil {
		return nil, err
	}
	s.filtered[key] = s.tree.With(dir)
	return s.filtered[key], nil
}

// below returns a directory in another one.
func below(root *artifact.Dir, dir string) (*artifact.Dir, error) {
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+dir), "/"), "/") {
		if name == "" {
			return root, nil
		}
		if root = entriesOf(root)[name].Dir; root == nil {
			return nil, fmt.Errorf("the repository has no directory '%s'", dir)
		}
	}
	return root, nil
}

// place is what applies to a directory of a checkout.
type place struct {
	rules ignore.Rules
	only  []string // paths in it to include; all when empty
	depth int
}

// enter returns the place of a child directory. It returns false if the checkout has nothing of it.
func (p place) enter(name string) (place, bool) {
	if p.rules.Prunes(name) {
		return place{}, false
	}
	sub := place{rules: p.rules.Enter(name), depth: p.depth + 1}
	for _, o := range p.only {
		if o == name {
			sub.only = nil
			return sub, true
		}
		if rest, ok := strings.CutPrefix(o, name+"/"); ok {
			sub.only = append(sub.only, rest)
		}
	}
	return sub, len(p.only) == 0 || len(sub.only) > 0
}

func (s *Snapshot) filter(d *artifact.Dir, at string, p place) (*artifact.Dir, error) {
	if p.depth > maxTreeDepth {
		return nil, fmt.Errorf("directories are nested more than %d levels deep", maxTreeDepth)
	}
	for _, e := range d.Entries {
		if e.Name == ignore.File && e.Mode.IsRegular() {
			own, err := s.tree.ReadFile(path.Join(at, e.Name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path.Join(at, e.Name), err)
			}
			if p.rules, err = p.rules.With(string(own)); err != nil {
				return nil, err
			}
		}
	}
	var entries []artifact.Entry
	for _, e := range d.Entries {
		if e.Dir == nil {
			if len(p.only) == 0 && !p.rules.Excludes(e.Name) {
				entries = append(entries, e)
			}
			continue
		}
		in, ok := p.enter(e.Name)
		if !ok {
			continue
		}
		sub, err := s.filter(e.Dir, path.Join(at, e.Name), in)
		if err != nil {
			return nil, err
		}
		if len(sub.Entries) > 0 {
			e.Dir, e.ID = sub, sub.ID
			entries = append(entries, e)
		}
	}
	if len(entries) == len(d.Entries) && slices.EqualFunc(entries, d.Entries,
		func(a, b artifact.Entry) bool { return a.ID == b.ID }) {
		return d, nil
	}
	return artifact.NewDir(entries), nil
}

// File returns the content of a file, and whether it exists. Larger files are an error.
func (s *Snapshot) File(name string, limit int64) ([]byte, bool, error) { return s.read(name, limit) }

// read returns the content of a file, and whether it exists. Larger files are an error.
func (s *Snapshot) read(name string, limit int64) ([]byte, bool, error) {
	info, err := s.tree.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, true, err
	case info.Size() > limit:
		return nil, true, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	content, err := s.tree.ReadFile(name)
	return content, true, err
}

// changedFiles returns the sorted names of the files that differ between two trees.
func changedFiles(from, to *artifact.Dir) []string {
	var out []string
	compare("", from, to, &out)
	return out
}

func compare(at string, from, to *artifact.Dir, out *[]string) {
	before, after := entriesOf(from), entriesOf(to)
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b, a, full := before[name], after[name], path.Join(at, name)
		if b.ID == a.ID && b.Mode == a.Mode || len(*out) >= maxChanged {
			continue
		}
		if b.Dir != nil || a.Dir != nil {
			compare(full, b.Dir, a.Dir, out)
		}
		if b.Name != "" && b.Dir == nil || a.Name != "" && a.Dir == nil {
			*out = append(*out, full)
		}
	}
}

func entriesOf(d *artifact.Dir) map[string]artifact.Entry {
	out := map[string]artifact.Entry{}
	if d != nil {
		for _, e := range d.Entries {
			out[e.Name] = e
		}
	}
	return out
}

// merge returns the directory that a merge of two revisions gives: for each file, the side that changed it since their
// common ancestor. Files that both sides changed in different ways are conflicts.
func merge(at string, base, from, to *artifact.Dir, conflicts *[]string) *artifact.Dir {
	b, f, t := entriesOf(base), entriesOf(from), entriesOf(to)
	names := maps.Clone(f)
	maps.Copy(names, t)
	var entries []artifact.Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, y, z := b[name], f[name], t[name]
		same := func(i, j artifact.Entry) bool { return i.ID == j.ID && i.Mode == j.Mode }
		switch {
		case same(y, z), same(x, z):
			z = y
		case same(x, y):
		case y.Dir != nil && z.Dir != nil:
			z.Dir = merge(path.Join(at, name), x.Dir, y.Dir, z.Dir, conflicts)
			z.ID = z.Dir.ID
		default:
			*conflicts = append(*conflicts, path.Join(at, name))
		}
		if z.Name != "" && (z.Dir == nil || len(z.Dir.Entries) > 0) {
			entries = append(entries, z)
		}
	}
	return artifact.NewDir(entries)
}

// conflictError is the error of a change that does not merge.
func conflictError(from, to string, files []string) error {
	more := ""
	if n := len(files) - 5; n > 0 {
		files, more = files[:5], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("'%s' and '%s' both change %s%s. Rebase or merge, then preview again", from, to,
		strings.Join(files, ", "), more)
}

// Rules returns the rules of the repository: the built-in ones, as its file changes them.
func (s *Snapshot) Rules() (*risk.Rules, error) {
	const limit = 1 << 20 // risk.Parse has a smaller one
	content, exists, err := s.read(risk.FileName, limit)
	if err != nil {
		return nil, err
	}
	if !exists {
		return risk.Default(), nil
	}
	return risk.Parse(content)
}
