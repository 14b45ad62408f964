// Package store keeps the tags of repositories of images on disk: one file a repository, written whole or not
// at all. All of it can be lost: a file that is damaged is as good as none, and the next scan writes it
// again.
package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/lru"
)

const (
	extension = ".tags"
	maxFile   = 1 << 30 // bytes of a file
	maxKept   = 200_000 // tags of repositories that stay in memory, some 40 MB at most
)

// ErrNotFound says that nothing is known of a repository: it was never scanned, or its file was damaged.
var ErrNotFound = errors.New("the repository was not scanned yet")

// Key names a repository.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

func (k Key) file() string { return path.Join(k.Namespace, k.Name+extension) }

// Repository is what a scan found. One that was loaded is shared: it must not be changed.
type Repository struct {
	Image    string    // with registry and path
	Excluded []string  // regular expressions of tags that were left out
	Scanned  time.Time // when the scan ended that found something else than the one before
	Revision string    // changes when a tag does, or what is known of one; set by Put
	Pages    []Page
}

// Page is one page of a registry's list, with what is to be asked to have it again.
type Page struct {
	URL  string // path and query
	ETag string // of the answer; empty where the registry gives none
	Sum  string // of the answer's body
	Next string // path and query of the next page; empty on the last

	Listed int // tags that the registry gave, excluded ones and all
	Tags   []policy.Tag
}

// Len returns how many tags there are.
func (r *Repository) Len() int {
	n := 0
	for _, p := range r.Pages {
		n += len(p.Tags)
	}
	return n
}

// Tags goes through the tags in the registry's order.
func (r *Repository) Tags() iter.Seq[*policy.Tag] {
	return func(yield func(*policy.Tag) bool) {
		for _, p := range r.Pages {
			for i := range p.Tags {
				if !yield(&p.Tags[i]) {
					return
				}
			}
		}
	}
}

// Identity is the revision that Put sets: a digest over the names of the tags and what they point to,
// whatever the order and the pages.
func (r *Repository) Identity() string {
	lines := make([]string, 0, r.Len())
	for t := range r.Tags() {
		line := t.Name + " " + t.Digest
		if t.Unreadable {
			line += "?"
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	sum := sha256.New()
	for _, line := range lines {
		_, _ = io.WriteString(sum, line) // a hash takes everything
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Store keeps repositories in a directory. It is safe for concurrent use.
type Store struct {
	root *os.Root

	cache lru.Cache[Key, *Repository] // size is the number of tags
}

// Open opens the store of a directory, which is made if it is not there.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Store{root: root}, nil
}

// Load returns what is known of a repository. The error is [ErrNotFound] if that is nothing.
func (s *Store) Load(key Key) (*Repository, error) {
	if r, ok := s.cache.Get(key); ok {
		return r, nil
	}
	f, err := s.root.Open(key.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	r, err := decode(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("%w: '%s' is damaged: %w", ErrNotFound, key.file(), err)
	}
	s.keep(key, r)
	return r, nil
}

// Put replaces what is known of a repository, and sets its revision.
func (s *Store) Put(key Key, r *Repository) error {
	r.Revision = r.Identity()
	if err := s.root.MkdirAll(key.Namespace, 0o700); err != nil {
		return err
	}
	next := key.file() + ".next"
	if err := s.write(next, r); err != nil {
		return errors.Join(err, s.root.Remove(next))
	}
	if err := s.root.Rename(next, key.file()); err != nil {
		return err
	}
	s.keep(key, r)
	return nil
}

func (s *Store) write(name string, r *Repository) error {
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(encode(f, r), f.Sync(), f.Close())
}

// Remove forgets a repository; one that is not known is forgotten already.
func (s *Store) Remove(key Key) error {
	s.cache.Remove(key)
	if err := s.root.Remove(key.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = s.root.Remove(key.Namespace) // only if it is empty
	return nil
}

// Collect removes repositories that are not live, and what writes that were interrupted left, and returns
// what it removed.
func (s *Store) Collect(live func(Key) bool) ([]Key, error) {
	files, err := fs.Glob(s.root.FS(), "*/*"+extension+"*")
	if err != nil {
		return nil, err
	}
	var removed []Key
	for _, file := range files {
		namespace, name := path.Split(file)
		key := Key{path.Clean(namespace), strings.TrimSuffix(name, extension)}
		switch {
		case !strings.HasSuffix(name, extension):
			err = errors.Join(err, s.root.Remove(file))
		case !live(key):
			err = errors.Join(err, s.Remove(key))
			removed = append(removed, key)
		}
	}
	return removed, err
}

// Close releases the directory.
func (s *Store) Close() error { return s.root.Close() }

func (s *Store) keep(key Key, r *Repository) {
	s.cache.Add(key, r, min(int64(r.Len()), maxKept), lru.Limits{Size: maxKept})
}

// Kept returns the number of tags in memory.
func (s *Store) Kept() int { return int(s.cache.Size()) }
