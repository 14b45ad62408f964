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
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxEntries = 2_000_000 // files and directories of a tree
	entryBytes = 300       // memory of an entry
	minEntry   = 28        // bytes of the shortest entry of a git directory: "40000 x", a zero byte and a hash
	entryShare = 2048      // bytes of the memory budget for each entry that a tree may have
	maxDepth   = 256       // of its directories
)

// directory is a git directory, and the artifact directory that results from it with the options. It is immutable, so
// that the trees of two commits share equal directories.
type directory struct {
	hash     plumbing.Hash
	rules    string // the ID of the rules from parent directories
	dir      *artifact.Dir
	children map[string]*directory
	origins  []origin // of the submodules in it
	total    int      // entries in it and below
}

// child returns the directory of a name; nil if there is none.
func (d *directory) child(name string) *directory {
	if d == nil {
		return nil
	}
	return d.children[name]
}

// isCurrent reports whether the mirrors of submodules in the directory were not replaced or damaged.
func (d *directory) isCurrent() bool {
	return d == nil || !slices.ContainsFunc(d.origins, func(o origin) bool {
		return o.mirror.current.Load() != o.from || o.from.damaged.Load()
	})
}

// mirrors returns the mirrors of the submodules in the directory.
func (d *directory) mirrors() (used []*mirror) {
	for _, o := range d.origins {
		used = append(used, o.mirror)
	}
	return used
}

// builder builds a tree.
type builder struct {
	ctx        context.Context
	view       *View
	submodules bool
	entries    int // that may still be added
	lease      *guard.Lease
	fetched    int // submodules
}

// top builds the root directory of a commit. before is that of the previous tree; nil if there is none.
func (b *builder) top(r *repository, commit plumbing.Hash, rules ignore.Rules, only []string,
	before *directory) (*directory, error) {
	root, err := r.rootTree(commit)
	if err != nil {
		return nil, err
	}
	c := &checkout{origin: origin{b.view.mirror, r}, remote: b.view.remote, root: root}
	for _, dir := range only {
		if err := b.exists(c, dir); err != nil {
			return nil, err
		}
	}
	return b.build(c, place{hash: root, rules: rules, only: only}, before)
}

// exists returns an error if the commit of a checkout has no directory and no submodule of this path.
func (b *builder) exists(c *checkout, dir string) error {
	at := place{hash: c.root}
	for name := range strings.SplitSeq(dir, "/") {
		listing, err := b.list(c, at)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(listing, func(e listed) bool {
			return e.name == name && !e.mode.IsRegular() && e.mode&fs.ModeSymlink == 0
		})
		if i < 0 {
			return &missingDirectoryError{dir}
		}
		if listing[i].mode != fs.ModeDir {
			return nil // of a submodule, which is fetched later
		}
		at.path, at.hash = append(at.path, name), listing[i].hash
	}
	return nil
}

// missingDirectoryError is the error of a path of spec.sparseCheckout that the commit does not have.
type missingDirectoryError struct{ dir string }

func (e *missingDirectoryError) Error() string {
	return fmt.Sprintf("directory '%s' of spec.sparseCheckout does not exist", wire.Printable(e.dir))
}

// place is a directory to build.
type place struct {
	path  []string
	hash  plumbing.Hash
	rules ignore.Rules
	only  []string // paths in it to include; all when empty
}

func (p place) String() string { return strings.Join(p.path, "/") }

// enter returns the place of a child directory. It returns false if the tree contains nothing of it.
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

// build builds a directory of a checkout. before is the directory of the previous tree; nil if there is none.
func (b *builder) build(c *checkout, p place, before *directory) (*directory, error) {
	if before != nil && before.hash == p.hash && before.rules == p.rules.ID() {
		return before, b.add(before.total)
	}
	if len(p.path) > maxDepth {
		return nil, fmt.Errorf("directories are nested more than %d levels deep", maxDepth)
	}
	listing, err := b.list(c, p)
	if err != nil {
		return nil, fmt.Errorf("directory '%s': %w", p, err)
	}
	d := &directory{hash: p.hash, rules: p.rules.ID(), total: len(listing)}
	if p.rules, err = b.localRules(c, listing, p.rules); err != nil {
		return nil, err
	}
	entries := make([]artifact.Entry, 0, len(listing))
	for _, e := range listing {
		if err := b.ctx.Err(); err != nil { // many rules take long
			return nil, err
		}
		if e.mode.IsRegular() || e.mode&fs.ModeSymlink != 0 {
			if len(p.only) == 0 && !p.rules.Excludes(e.name) {
				entries = append(entries, artifact.Entry{Name: e.name, Mode: e.mode, ID: contentID(e)})
			}
			continue
		}
		sub, err := b.enter(c, p, e, before.child(e.name))
		if err != nil {
			return nil, err
		}
		if sub == nil {
			continue
		}
		if d.children == nil {
			d.children = map[string]*directory{}
		}
		d.children[e.name] = sub
		d.total += sub.total
		d.origins = append(d.origins, sub.origins...)
		if len(sub.dir.Entries) > 0 {
			entries = append(entries, artifact.Entry{Name: e.name, Mode: fs.ModeDir | 0o755, ID: sub.dir.ID,
				Dir: sub.dir})
		}
	}
	d.dir = artifact.NewDir(slices.Clip(entries))
	return d, nil
}

// enter builds a child directory or a submodule. It returns nil if the tree contains nothing of it.
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

// list reads and checks a git directory, and counts its entries.
func (b *builder) list(c *checkout, p place) ([]listed, error) {
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	listing, err := b.parse(c, p.hash, b.entries)
	if errors.Is(err, ErrTooManyEntries) {
		return nil, b.tooMany()
	}
	if err != nil {
		return nil, err
	}
	return listing, b.count(len(listing))
}

// parse reads and checks a git directory with at most most entries. Before it parses them, it takes memory for as many
// as there may be. Afterwards it keeps that of those that exist.
func (b *builder) parse(c *checkout, hash plumbing.Hash, most int) ([]listed, error) {
	held := b.lease.Bytes()
	kind, data, err := c.from.objects.ReadWith(b.ctx, hash, b.lease)
	if err != nil {
		c.markDamaged(err)
		return nil, err
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is not a directory", hash)
	}
	if err := b.lease.Grow(b.ctx, int64(len(data)/minEntry)*entryBytes); err != nil {
		return nil, err
	}
	listing, err := parseTree(data, most)
	if err != nil {
		return nil, err
	}
	b.lease.Shrink(held + int64(len(listing))*entryBytes)
	return listing, nil
}

// read returns a file of a checkout. A large one has memory of the lease while it is read.
func (b *builder) read(c *checkout, file plumbing.Hash) ([]byte, error) {
	held := b.lease.Bytes()
	defer b.lease.Shrink(held)
	_, data, err := c.from.objects.ReadWith(b.ctx, file, b.lease)
	c.markDamaged(err)
	return data, err
}

// add counts entries of the tree, and takes memory for them.
func (b *builder) add(entries int) error {
	if err := b.count(entries); err != nil {
		return err
	}
	return b.lease.Grow(b.ctx, int64(entries)*entryBytes)
}

// count counts entries of the tree.
func (b *builder) count(entries int) error {
	if b.entries -= entries; b.entries < 0 {
		return b.tooMany()
	}
	return nil
}

func (b *builder) tooMany() error {
	return fmt.Errorf("the tree has more than %d files and directories", b.view.mirror.limits.entries)
}

// localRules adds the rules of the .sourceignore file in the directory.
func (b *builder) localRules(c *checkout, listing []listed, rules ignore.Rules) (ignore.Rules, error) {
	for _, e := range listing {
		if e.name != ignore.File || !e.mode.IsRegular() {
			continue
		}
		text, err := b.read(c, e.hash)
		if err == nil {
			err = ignore.CheckSize(ignore.File, int64(len(text)))
		}
		if err != nil {
			return rules, err
		}
		return rules.With(string(text))
	}
	return rules, nil
}

// explainTree returns the fault for an error of building a tree.
func explainTree(revision Revision, err error) error {
	f := gitFault("cannot read the tree of commit %s", revision.Commit).Because(err)
	if cause := fault.As(err); cause != nil {
		f.Reason, f.RetryAfter, f.Terminal = cause.Reason, cause.RetryAfter, cause.Terminal
	}
	if errors.Is(err, packstore.ErrDamaged) || errors.Is(err, packstore.ErrNotFound) {
		return f.WithHint("The mirror is damaged; it is fetched again at the next interval")
	}
	if limit := new(ignore.LimitError); errors.As(err, &limit) {
		return f.WithHint(ignore.LimitHint)
	}
	if missing := new(missingDirectoryError); errors.As(err, &missing) {
		return f.WithHint("Correct spec.sparseCheckout, or add the directory to the repository")
	}
	return f
}

// submodule is the mode of a submodule: a directory that is a commit of another repository.
const submodule = fs.ModeDir | fs.ModeIrregular

// listed is an entry of a git directory.
type listed struct {
	name string
	mode fs.FileMode // of directories the type only
	hash plumbing.Hash
}

var errTree = errors.New("the directory is malformed")

// ErrTooManyEntries is the error for a directory with more entries than the caller allows.
var ErrTooManyEntries = errors.New("the directory has too many entries")

// entry is an entry of a git directory as stored.
type entry struct {
	mode string // in octal digits
	name string
	hash plumbing.Hash
}

// cutEntry parses the first entry of a git directory, "<mode> <name>\0<hash>", and returns the rest.
func cutEntry(data []byte) (e entry, rest []byte, err error) {
	mode, rest, ok := bytes.Cut(data, []byte(" "))
	name, rest, ended := bytes.Cut(rest, []byte{0})
	if !ok || !ended || len(rest) < len(e.hash) {
		return e, nil, errTree
	}
	e.mode, e.name = string(mode), string(name)
	return e, rest[copy(e.hash[:], rest):], nil
}

// parseTree parses a git directory with at most most entries. It returns an error for invalid and duplicate names and
// for unknown modes.
func parseTree(data []byte, most int) ([]listed, error) {
	var listing []listed
	seen := make(map[string]bool, min(len(data)/32, most))
	for len(data) > 0 {
		if len(listing) >= most {
			return nil, ErrTooManyEntries
		}
		raw, rest, err := cutEntry(data)
		if err != nil {
			return nil, err
		}
		data = rest
		e := listed{name: raw.name, hash: raw.hash}
		if e.name == "" || e.name == "." || e.name == ".." || strings.Contains(e.name, "/") || seen[e.name] {
			return nil, fmt.Errorf("%w: name %q", errTree, e.name)
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
			return nil, fmt.Errorf("%w: mode %q", errTree, raw.mode)
		}
		listing = append(listing, e)
	}
	return listing, nil
}
