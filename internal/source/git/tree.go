package git

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

const (
	maxEntries = 2_000_000 // files and directories of one tree
	maxDepth   = 256
)

// lastTree is the tree given last; the next one shares the directories that did not change.
type lastTree struct {
	spec string
	dirs map[string]builtDir // by path
}

// builtDir is a directory as git has it and as the rules leave it.
type builtDir struct {
	hash plumbing.Hash
	dir  *artifact.Dir
}

// Tree returns the tree of a revision that the mirror holds. Spec is the source's spec.ignore, nil when unset.
// No file is read but .sourceignore ones.
func (m *Mirror) Tree(revision Revision, spec *string) (*artifact.Tree, error) {
	m.objects.mu.Lock()
	defer m.objects.mu.Unlock()
	commit, err := object.GetCommit(m.objects.store, plumbing.NewHash(revision.Commit))
	if err != nil {
		return nil, gitFault("commit %s is not in the mirror", revision.Commit).Because(err)
	}
	key := "default"
	if spec != nil {
		key = "spec:" + *spec
	}
	b := &treeBuilder{objects: m.objects, rules: ignore.New(spec), next: map[string]builtDir{}}
	if m.last != nil && m.last.spec == key {
		b.before = m.last.dirs
	}
	root, err := b.build(nil, commit.TreeHash, b.rules, true)
	if err != nil {
		return nil, gitFault("cannot read the tree of commit %s", revision.Commit).Because(err)
	}
	m.last = &lastTree{spec: key, dirs: b.next}
	return artifact.NewTree(root, m.objects), nil
}

type treeBuilder struct {
	objects *objects // locked by the caller
	rules   ignore.Rules
	before  map[string]builtDir
	next    map[string]builtDir
	count   int
}

// build makes the directory at path. Shared says that the rules coming from above are those of the tree before, so that a
// directory with the same hash is the same.
func (b *treeBuilder) build(path []string, hash plumbing.Hash, rules ignore.Rules, shared bool) (*artifact.Dir, error) {
	name := strings.Join(path, "/")
	if was, ok := b.before[name]; ok && shared && was.hash == hash {
		b.keep(name, was)
		return was.dir, nil
	}
	if len(path) > maxDepth {
		return nil, fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	tree, err := object.GetTree(b.objects.store, hash)
	if err != nil {
		return nil, err
	}
	if b.count += len(tree.Entries); b.count > maxEntries {
		return nil, fmt.Errorf("more than %d files", maxEntries)
	}
	rules, shared, err = b.localRules(path, tree, rules, shared)
	if err != nil {
		return nil, err
	}
	var entries []artifact.Entry
	for _, e := range tree.Entries {
		below := append(slices.Clip(path), e.Name)
		if !validName(e.Name) || rules.Match(below, e.Mode == filemode.Dir) {
			continue
		}
		switch e.Mode {
		case filemode.Dir:
			dir, err := b.build(below, e.Hash, rules, shared)
			if err != nil {
				return nil, err
			}
			if len(dir.Entries) > 0 {
				entries = append(entries, artifact.Entry{Name: e.Name, Mode: fs.ModeDir | 0o755, ID: dir.ID, Dir: dir})
			}
		case filemode.Symlink:
			entries = append(entries, fileEntry(e, fs.ModeSymlink|0o777))
		case filemode.Executable:
			entries = append(entries, fileEntry(e, 0o755))
		case filemode.Regular, filemode.Deprecated:
			entries = append(entries, fileEntry(e, 0o644))
		}
	}
	dir := artifact.NewDir(entries)
	b.next[name] = builtDir{hash, dir}
	return dir, nil
}

// keep notes an unchanged directory, and those below it, for the tree after this one.
func (b *treeBuilder) keep(name string, was builtDir) {
	b.next[name] = was
	for _, e := range was.dir.Entries {
		if e.Dir == nil {
			continue
		}
		below := e.Name
		if name != "" {
			below = name + "/" + e.Name
		}
		b.keep(below, b.before[below])
	}
}

// localRules adds the directory's own .sourceignore. The rules below are shared with the tree before only if it is the same there.
func (b *treeBuilder) localRules(path []string, tree *object.Tree, rules ignore.Rules, shared bool) (ignore.Rules, bool, error) {
	i := slices.IndexFunc(tree.Entries, func(e object.TreeEntry) bool { return e.Name == ignore.File && e.Mode.IsFile() })
	id := ""
	if i >= 0 {
		id = tree.Entries[i].Hash.String()
		blob, err := object.GetBlob(b.objects.store, tree.Entries[i].Hash)
		if err != nil {
			return rules, false, err
		}
		text, err := readSmall(blob)
		if err != nil {
			return rules, false, err
		}
		rules = rules.With(path, text)
	}
	was, ok := b.before[strings.Join(path, "/")]
	if !ok {
		return rules, shared, nil
	}
	return rules, shared && b.ignoreID(was.hash) == id, nil
}

// ignoreID returns the hash of the .sourceignore in a git directory, or nothing.
func (b *treeBuilder) ignoreID(hash plumbing.Hash) string {
	tree, err := object.GetTree(b.objects.store, hash)
	if err != nil {
		return "unknown"
	}
	for _, e := range tree.Entries {
		if e.Name == ignore.File {
			return e.Hash.String()
		}
	}
	return ""
}

func fileEntry(e object.TreeEntry, mode fs.FileMode) artifact.Entry {
	return artifact.Entry{Name: e.Name, Mode: mode, ID: fmt.Sprintf("%o:%s", uint32(mode), e.Hash)}
}

// blobHash reads back what fileEntry wrote.
func blobHash(id string) plumbing.Hash {
	return plumbing.NewHash(id[strings.IndexByte(id, ':')+1:])
}

// validName refuses names that a hostile tree may hold and that no path may have.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// maxRules bounds a .sourceignore file, in bytes.
const maxRules = 1 << 20

func readSmall(blob *object.Blob) (string, error) {
	if blob.Size > maxRules {
		return "", fmt.Errorf("%s is larger than %d bytes", ignore.File, maxRules)
	}
	r, err := blob.Reader()
	if err != nil {
		return "", err
	}
	defer r.Close() // read to its end
	b, err := io.ReadAll(r)
	return string(b), err
}
