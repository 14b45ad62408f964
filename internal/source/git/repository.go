package git

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
)

// repository is a bare one on disk, as git itself understands it. What it has of history are single commits
// that fetches brought, each with all of its tree, under references of ours.
type repository struct {
	dir     string
	objects *packstore.Store
	tips    []plumbing.Hash // commits that were fetched or pushed, the oldest first
	shallow []plumbing.Hash // those of them that came without their parents
	damaged atomic.Bool     // set by a reader that found a file not to be what was written
}

const (
	tipsFile    = "packed-refs" // the file that is written last: what it names is there
	shallowFile = "shallow"
	tipPrefix   = "refs/sluice/"
)

// createRepository makes an empty one in a directory that is not there yet.
func createRepository(dir string) (*repository, error) {
	if err := os.MkdirAll(filepath.Join(dir, "refs"), 0o700); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"HEAD":   "ref: refs/heads/none\n",
		"config": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	return loadRepository(dir)
}

// loadRepository opens what is in dir. An error says that it is not whole.
func loadRepository(dir string) (*repository, error) {
	r := &repository{dir: dir}
	var err error
	if r.objects, err = packstore.Open(filepath.Join(dir, "objects", "pack")); err != nil {
		return nil, err
	}
	if r.shallow, err = readHashes(filepath.Join(dir, shallowFile)); err != nil {
		return nil, err
	}
	if r.tips, err = readHashes(filepath.Join(dir, tipsFile)); err != nil {
		return nil, err
	}
	for _, tip := range r.tips {
		if !r.holds(tip) {
			return nil, fmt.Errorf("commit %s is missing", tip)
		}
	}
	return r, nil
}

// holds tells whether the commit and its top directory are there. Both come in one pack with all that is new below.
func (r *repository) holds(commit plumbing.Hash) bool {
	if r.damaged.Load() {
		return false
	}
	tree, err := r.rootTree(commit)
	return err == nil && r.objects.Has(tree)
}

// rootTree returns the top directory of a commit.
func (r *repository) rootTree(commit plumbing.Hash) (plumbing.Hash, error) {
	kind, data, err := r.objects.Read(commit)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	word, hash, _ := strings.Cut(string(line), " ")
	if kind != plumbing.CommitObject || word != "tree" || !plumbing.IsHash(hash) {
		return plumbing.ZeroHash, fmt.Errorf("object %s is no commit", commit)
	}
	return plumbing.NewHash(hash), nil
}

// parentsOf reads what a commit builds upon.
func parentsOf(commit []byte) (parents []plumbing.Hash) {
	for line := range bytes.Lines(commit) {
		word, hash, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch {
		case word == "parent" && plumbing.IsHash(hash):
			parents = append(parents, plumbing.NewHash(hash))
		case word != "tree":
			return parents
		}
	}
	return parents
}

// record notes commits that the remote has, once their pack is in place. A process that is killed before the
// last step leaves objects that nothing names.
func (r *repository) record(shallow []plumbing.Hash, commits ...plumbing.Hash) error {
	for _, h := range shallow {
		if !slices.Contains(r.shallow, h) {
			r.shallow = append(r.shallow, h)
		}
	}
	var b bytes.Buffer
	for _, h := range r.shallow {
		fmt.Fprintln(&b, h)
	}
	if len(r.shallow) > 0 {
		if err := replace(filepath.Join(r.dir, shallowFile), b.Bytes()); err != nil {
			return err
		}
	}
	r.tips = append(slices.DeleteFunc(r.tips, func(h plumbing.Hash) bool { return slices.Contains(commits, h) }),
		commits...)
	b.Reset()
	for i, h := range r.tips {
		fmt.Fprintf(&b, "%s %s%06d\n", h, tipPrefix, i)
	}
	return replace(filepath.Join(r.dir, tipsFile), b.Bytes())
}

// latest returns the n commits that were fetched last.
func (r *repository) latest(n int) []plumbing.Hash {
	return slices.Clone(r.tips[max(0, len(r.tips)-n):])
}

// readHashes reads a file with a hash at the start of each line; none is there before the first fetch.
func readHashes(file string) ([]plumbing.Hash, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var hashes []plumbing.Hash
	for line := range strings.Lines(string(b)) {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !plumbing.IsHash(word) {
			return nil, fmt.Errorf("%s is damaged", filepath.Base(file))
		}
		hashes = append(hashes, plumbing.NewHash(word))
	}
	return hashes, nil
}

// replace puts a file in place whole or not at all.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".tmp", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}
