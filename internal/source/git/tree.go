package git

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git/packs"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

const (
	maxEntries = 2_000_000 // files and directories of one tree
	maxDepth   = 256       // of its directories
	maxRules   = 1 << 20   // bytes of a .sourceignore file
)

// directory is one as git has it and as the rules leave it. It is never changed, so that the trees of two commits share
// what is the same in both.
type directory struct {
	hash  plumbing.Hash
	rules string // the ID of the rules that came from above
	dir   *artifact.Dir
	below map[string]*directory
}

// Tree returns the tree of a revision that the mirror holds. Spec is the source's spec.ignore, nil when unset.
// No file is read but .sourceignore ones, and no directory that is as it was in the tree before. The error is a fault.
func (m *Mirror) Tree(revision Revision, spec *string) (*artifact.Tree, error) {
	commit := plumbing.NewHash(revision.Commit)
	r := m.current.Load()
	if r == nil || !r.holds(commit) {
		return nil, gitFault("commit %s is not in the mirror", revision.Commit).WithHint("It is fetched at the next interval")
	}
	content := &content{mirror: m, from: r}
	b := &treeBuilder{content: content, left: m.limits.entries}
	root, err := r.rootTree(commit)
	if err == nil {
		m.last, err = b.build(nil, root, ignore.New(spec), m.last)
	}
	if err != nil {
		m.last = nil
		content.blame(err)
		return nil, gitFault("cannot read the tree of commit %s", revision.Commit).Because(err)
	}
	return artifact.NewTree(m.last.dir, content), nil
}

type treeBuilder struct {
	content *content
	left    int // entries that may still come
}

// build makes the directory at path. Before is what stood there in the tree before, nil if nothing did.
func (b *treeBuilder) build(path []string, hash plumbing.Hash, rules ignore.Rules, before *directory) (*directory, error) {
	if before != nil && before.hash == hash && before.rules == rules.ID() {
		return before, nil
	}
	if len(path) > maxDepth {
		return nil, fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	listing, err := b.list(hash)
	if err != nil {
		return nil, fmt.Errorf("directory '%s': %w", strings.Join(path, "/"), err)
	}
	d := &directory{hash: hash, rules: rules.ID()}
	if rules, err = b.localRules(listing, rules); err != nil {
		return nil, err
	}
	entries := make([]artifact.Entry, 0, len(listing))
	for _, e := range listing {
		if e.mode != fs.ModeDir {
			if !rules.Excludes(e.name) {
				entries = append(entries, artifact.Entry{Name: e.name, Mode: e.mode, ID: contentID(e)})
			}
			continue
		}
		if rules.Prunes(e.name) {
			continue
		}
		sub, err := b.build(append(slices.Clip(path), e.name), e.hash, rules.Enter(e.name), before.at(e.name))
		if err != nil {
			return nil, err
		}
		if d.below == nil {
			d.below = map[string]*directory{}
		}
		d.below[e.name] = sub
		if len(sub.dir.Entries) > 0 {
			entries = append(entries, artifact.Entry{Name: e.name, Mode: fs.ModeDir | 0o755, ID: sub.dir.ID, Dir: sub.dir})
		}
	}
	d.dir = artifact.NewDir(slices.Clip(entries))
	return d, nil
}

func (d *directory) at(name string) *directory {
	if d == nil {
		return nil
	}
	return d.below[name]
}

// list reads a directory, and checks what a hostile one may hold.
func (b *treeBuilder) list(hash plumbing.Hash) ([]listed, error) {
	kind, data, err := b.content.from.objects.Read(hash)
	if err != nil {
		return nil, err
	}
	if kind != plumbing.TreeObject {
		return nil, fmt.Errorf("object %s is no directory", hash)
	}
	listing, err := parseTree(data)
	if b.left -= len(listing); err == nil && b.left < 0 {
		err = errors.New("there are too many files")
	}
	return listing, err
}

// localRules adds the directory's own .sourceignore.
func (b *treeBuilder) localRules(listing []listed, rules ignore.Rules) (ignore.Rules, error) {
	for _, e := range listing {
		if e.name != ignore.File || !e.mode.IsRegular() {
			continue
		}
		_, text, err := b.content.from.objects.Read(e.hash)
		if err == nil && len(text) > maxRules {
			err = fmt.Errorf("%s is larger than %d bytes", ignore.File, maxRules)
		}
		if err != nil {
			return rules, err
		}
		return rules.With(string(text)), nil
	}
	return rules, nil
}

// listed is an entry of a git directory.
type listed struct {
	name string
	mode fs.FileMode // of directories only the type
	hash plumbing.Hash
}

var errTree = errors.New("the directory is malformed")

// parseTree reads a git directory: "<mode in octal> <name>\0<hash>" again and again. Submodules are left out.
func parseTree(data []byte) ([]listed, error) {
	var listing []listed
	seen := make(map[string]bool, len(data)/32)
	for len(data) > 0 {
		octal, rest, ok := bytes.Cut(data, []byte(" "))
		name, rest, ended := bytes.Cut(rest, []byte{0})
		if !ok || !ended || len(rest) < len(plumbing.Hash{}) {
			return nil, errTree
		}
		e := listed{name: string(name)}
		data = rest[copy(e.hash[:], rest):]
		// No path may have such a name, nor may one stand for two things.
		if e.name == "" || e.name == "." || e.name == ".." || strings.Contains(e.name, "/") || seen[e.name] {
			return nil, fmt.Errorf("%w: the name %q", errTree, e.name)
		}
		seen[e.name] = true
		switch string(octal) {
		case "40000", "040000":
			e.mode = fs.ModeDir
		case "100644", "100664":
			e.mode = 0o644
		case "100755":
			e.mode = 0o755
		case "120000":
			e.mode = fs.ModeSymlink | 0o777
		case "160000":
			continue
		default:
			return nil, fmt.Errorf("%w: the mode %q", errTree, octal)
		}
		listing = append(listing, e)
	}
	return listing, nil
}

// contentID names a file by its mode and its hash.
func contentID(e listed) string {
	id := make([]byte, 0, len("link:")+2*len(e.hash))
	switch e.mode {
	case 0o644:
		id = append(id, "file:"...)
	case 0o755:
		id = append(id, "exec:"...)
	default:
		id = append(id, "link:"...)
	}
	return string(hex.AppendEncode(id, e.hash[:]))
}

// content reads the files of a tree. It implements artifact.Content.
type content struct {
	mirror *Mirror
	from   *repository // that the tree was made of; its files stay open
}

var _ artifact.Content = (*content)(nil)

// Size implements artifact.Content.
func (c *content) Size(id string) (size int64, err error) {
	err = c.each(func(s *packs.Store) error {
		size, err = s.Size(blobHash(id))
		return err
	})
	return size, err
}

// Read implements artifact.Content.
func (c *content) Read(id string) (data []byte, err error) {
	err = c.each(func(s *packs.Store) error {
		_, data, err = s.Read(blobHash(id))
		return err
	})
	return data, err
}

func blobHash(id string) plumbing.Hash { return plumbing.NewHash(id[strings.IndexByte(id, ':')+1:]) }

// each reads from where the tree was made of; should that be damaged, from what was fetched in its place.
func (c *content) each(read func(*packs.Store) error) error {
	err := read(c.from.objects)
	if err == nil || !c.blame(err) {
		return err
	}
	if now := c.mirror.current.Load(); now != nil && now != c.from {
		return read(now.objects)
	}
	return fmt.Errorf("the kept mirror is damaged, and is fetched again at the next interval: %w", err)
}

// blame notes that the mirror is damaged, if the error says so, for the next update to fetch it anew.
func (c *content) blame(err error) bool {
	if !errors.Is(err, packs.ErrDamaged) && !errors.Is(err, packs.ErrNotFound) {
		return false
	}
	c.from.damaged.Store(true)
	return true
}
