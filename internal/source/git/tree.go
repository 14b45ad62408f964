package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

const (
	maxEntries = 2_000_000 // files and directories of one tree
	maxDepth   = 256       // of its directories
	maxRules   = 1 << 20   // bytes of a .sourceignore file
)

// directory is one as git has it and as the options leave it. It is never changed, so that the trees of two
// commits share what is the same in both.
type directory struct {
	hash    plumbing.Hash
	rules   string // the ID of the rules that came from above
	dir     *artifact.Dir
	below   map[string]*directory
	origins []origin // of the submodules in it
}

func (d *directory) at(name string) *directory {
	if d == nil {
		return nil
	}
	return d.below[name]
}

// current tells whether submodules in the directory are still read from where they were.
func (d *directory) current() bool {
	return d == nil || !slices.ContainsFunc(d.origins, func(o origin) bool {
		return o.mirror.current.Load() != o.from || o.from.damaged.Load()
	})
}

func (d *directory) mirrors() (used []*mirror) {
	for _, o := range d.origins {
		used = append(used, o.mirror)
	}
	return used
}

// builder makes one tree.
type builder struct {
	ctx        context.Context
	view       *View
	submodules bool
	entries    int // that came so far may be taken off
	fetched    int // submodules
}

// top makes the top directory of a commit. Before is that of the tree before, nil if there is none to share with.
func (b *builder) top(r *repository, commit plumbing.Hash, rules ignore.Rules, only []string,
	before *directory) (*directory, error) {
	root, err := r.rootTree(commit)
	if err != nil {
		return nil, err
	}
	c := &checkout{origin: origin{b.view.mirror, r}, remote: b.view.remote, root: root}
	return b.build(c, place{hash: root, rules: rules, only: only}, before)
}

// place is a directory that is to be built.
type place struct {
	path  []string
	hash  plumbing.Hash
	rules ignore.Rules
	only  []string // paths in it that the tree is made of; all when empty
}

func (p place) String() string { return strings.Join(p.path, "/") }

// enter returns the place of a directory in this one; false when the tree has nothing of it.
func (p place) enter(e listed) (place, bool) {
	if p.rules.Prunes(e.name) {
		return place{}, false
	}
	sub := place{path: append(slices.Clip(p.path), e.name), hash: e.hash, rules: p.rules.Enter(e.name)}
	for _, o := range p.only {
		if o == e.name {
			sub.only = nil
			return sub, true
		}
		if rest, ok := strings.CutPrefix(o, e.name+"/"); ok {
			sub.only = append(sub.only, rest)
		}
	}
	return sub, len(p.only) == 0 || len(sub.only) > 0
}

// build makes a directory of a checkout. Before is what stood there in the tree before, nil if nothing did.
func (b *builder) build(c *checkout, p place, before *directory) (*directory, error) {
	if before != nil && before.hash == p.hash && before.rules == p.rules.ID() {
		return before, nil
	}
	if len(p.path) > maxDepth {
		return nil, fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	listing, err := b.list(c, p)
	if err != nil {
		return nil, fmt.Errorf("directory '%s': %w", p, err)
	}
	d := &directory{hash: p.hash, rules: p.rules.ID()}
	if p.rules, err = localRules(c, listing, p.rules); err != nil {
		return nil, err
	}
	entries := make([]artifact.Entry, 0, len(listing))
	for _, e := range listing {
		if e.mode.IsRegular() || e.mode&fs.ModeSymlink != 0 {
			if len(p.only) == 0 && !p.rules.Excludes(e.name) {
				entries = append(entries, artifact.Entry{Name: e.name, Mode: e.mode, ID: contentID(e)})
			}
			continue
		}
		sub, err := b.enter(c, p, e, before.at(e.name))
		if err != nil {
			return nil, err
		}
		if sub == nil {
			continue
		}
		if d.below == nil {
			d.below = map[string]*directory{}
		}
		d.below[e.name] = sub
		d.origins = append(d.origins, sub.origins...)
		if len(sub.dir.Entries) > 0 {
			entries = append(entries, artifact.Entry{Name: e.name, Mode: fs.ModeDir | 0o755, ID: sub.dir.ID,
				Dir: sub.dir})
		}
	}
	d.dir = artifact.NewDir(slices.Clip(entries))
	return d, nil
}

// enter makes what stands in a directory: another one, or a submodule. It is nil if the tree has nothing of it.
func (b *builder) enter(c *checkout, p place, e listed, before *directory) (*directory, error) {
	sub, ok := p.enter(e)
	switch {
	case !ok:
		return nil, nil
	case e.mode == fs.ModeDir:
		return b.build(c, sub, before)
	case !b.submodules:
		return nil, nil
	}
	d, err := b.submodule(c, sub, before)
	if err != nil {
		return nil, inSubmodule(sub, err)
	}
	return d, nil
}

// list reads a directory, and checks what a hostile one may hold.
func (b *builder) list(c *checkout, p place) ([]listed, error) {
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	kind, data, err := c.from.objects.Read(p.hash)
	if err != nil {
		c.blame(err)
		return nil, err
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is no directory", p.hash)
	}
	listing, err := parseTree(data)
	if b.entries -= len(listing); err == nil && b.entries < 0 {
		err = errors.New("there are too many files")
	}
	return listing, err
}

// localRules adds the directory's own .sourceignore.
func localRules(c *checkout, listing []listed, rules ignore.Rules) (ignore.Rules, error) {
	for _, e := range listing {
		if e.name != ignore.File || !e.mode.IsRegular() {
			continue
		}
		_, text, err := c.from.objects.Read(e.hash)
		if err == nil && len(text) > maxRules {
			err = fmt.Errorf("%s is larger than %d bytes", ignore.File, maxRules)
		}
		if err != nil {
			c.blame(err)
			return rules, err
		}
		return rules.With(string(text)), nil
	}
	return rules, nil
}

// explainTree turns an error of building a tree into a fault.
func explainTree(revision Revision, err error) error {
	f := gitFault("cannot read the tree of commit %s", revision.Commit).Because(err)
	if cause := fault.As(err); cause != nil {
		f.Reason, f.RetryAfter, f.Terminal = cause.Reason, cause.RetryAfter, cause.Terminal
	}
	if errors.Is(err, packstore.ErrDamaged) || errors.Is(err, packstore.ErrNotFound) {
		return f.WithHint("The kept mirror is damaged, and is fetched again at the next interval")
	}
	return f
}

// submodule is the mode of a directory that is a commit of another repository.
const submodule = fs.ModeDir | fs.ModeIrregular

// listed is an entry of a git directory.
type listed struct {
	name string
	mode fs.FileMode // of directories only the type
	hash plumbing.Hash
}

var errTree = errors.New("the directory is malformed")

// entry is one of a git directory as it lies there.
type entry struct {
	mode string // in octal digits
	name string
	hash plumbing.Hash
}

// cutEntry takes the first entry off a git directory: "<mode> <name>\0<hash>".
func cutEntry(data []byte) (e entry, rest []byte, err error) {
	mode, rest, ok := bytes.Cut(data, []byte(" "))
	name, rest, ended := bytes.Cut(rest, []byte{0})
	if !ok || !ended || len(rest) < len(e.hash) {
		return e, nil, errTree
	}
	e.mode, e.name = string(mode), string(name)
	return e, rest[copy(e.hash[:], rest):], nil
}

// parseTree reads a git directory, and refuses what no directory may hold.
func parseTree(data []byte) ([]listed, error) {
	var listing []listed
	seen := make(map[string]bool, len(data)/32)
	for len(data) > 0 {
		raw, rest, err := cutEntry(data)
		if err != nil {
			return nil, err
		}
		data = rest
		e := listed{name: raw.name, hash: raw.hash}
		// No path may have such a name, nor may one stand for two things.
		if e.name == "" || e.name == "." || e.name == ".." || strings.Contains(e.name, "/") || seen[e.name] {
			return nil, fmt.Errorf("%w: the name %q", errTree, e.name)
		}
		seen[e.name] = true
		switch raw.mode {
		case "40000", "040000":
			e.mode = fs.ModeDir
		case "100644", "100664":
			e.mode = 0o644
		case "100755":
			e.mode = 0o755
		case "120000":
			e.mode = fs.ModeSymlink | 0o777
		case "160000":
			e.mode = submodule
		default:
			return nil, fmt.Errorf("%w: the mode %q", errTree, raw.mode)
		}
		listing = append(listing, e)
	}
	return listing, nil
}
