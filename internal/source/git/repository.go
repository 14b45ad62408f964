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

// repository is a bare repository on disk, which git can read. It contains single commits, each with its
// whole tree, and a reference for each of them.
type repository struct {
	dir     string
	objects *packstore.Store
	tips    []plumbing.Hash // fetched and pushed commits, the oldest first
	shallow []plumbing.Hash // commits without their parents
	damaged atomic.Bool     // a reader found a damaged file
}

const (
	tipsFile    = "packed-refs" // written last: the commits in it are complete
	shallowFile = "shallow"
	tipPrefix   = "refs/sluice/"
)

// createRepository creates an empty repository in a new directory.
func createRepository(dir string, shared *packstore.Shared) (*repository, error) {
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
	return loadRepository(dir, shared)
}

// loadRepository opens the repository in dir. It returns an error if it is incomplete.
func loadRepository(dir string, shared *packstore.Shared) (*repository, error) {
	r := &repository{dir: dir}
	var err error
	if r.objects, err = packstore.Open(filepath.Join(dir, "objects", "pack"), shared); err != nil {
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

// holds reports whether the repository contains the commit and its root tree. All new objects are in the same pack.
func (r *repository) holds(commit plumbing.Hash) bool {
	if r.damaged.Load() {
		return false
	}
	tree, err := r.rootTree(commit)
	return err == nil && r.objects.Has(tree)
}

// rootTree returns the root tree of a commit.
func (r *repository) rootTree(commit plumbing.Hash) (plumbing.Hash, error) {
	kind, data, err := r.objects.Read(commit)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	word, hash, _ := strings.Cut(string(line), " ")
	if kind != plumbing.CommitObject || word != "tree" || !plumbing.IsHash(hash) {
		return plumbing.ZeroHash, fmt.Errorf("object %s is not a commit", commit)
	}
	return plumbing.NewHash(hash), nil
}

// parentsOf returns the parents of a commit.
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

// record adds commits, after their pack was stored. A process that is killed before the last step leaves objects
// without a reference.
func (r *repository) record(shallow []plumbing.Hash, commits ...plumbing.Hash) error {
	known := make(map[plumbing.Hash]bool, len(r.shallow)+len(shallow))
	for _, h := range r.shallow {
		known[h] = true
	}
	for _, h := range shallow {
		if !known[h] {
			known[h] = true
			r.shallow = append(r.shallow, h)
		}
	}
	var b bytes.Buffer
	for _, h := range r.shallow {
		fmt.Fprintln(&b, h)
	}
	if len(r.shallow) > 0 {
		if err := replaceFile(filepath.Join(r.dir, shallowFile), b.Bytes()); err != nil {
			return err
		}
	}
	r.tips = append(slices.DeleteFunc(r.tips, func(h plumbing.Hash) bool { return slices.Contains(commits, h) }),
		commits...)
	b.Reset()
	for i, h := range r.tips {
		fmt.Fprintf(&b, "%s %s%06d\n", h, tipPrefix, i)
	}
	return replaceFile(filepath.Join(r.dir, tipsFile), b.Bytes())
}

// latest returns the last n commits.
func (r *repository) latest(n int) []plumbing.Hash {
	return slices.Clone(r.tips[max(0, len(r.tips)-n):])
}

// readHashes reads a file with a hash at the start of each line. The file may be missing.
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

// replaceFile replaces a file atomically.
func replaceFile(file string, content []byte) error {
	if err := os.WriteFile(file+".tmp", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}
