// Package store stores the tags of image repositories on disk, in one file per repository that is replaced
// atomically. The data is a cache: a corrupt file is treated as missing, and the next scan writes it again.
package store

import (
	"context"
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

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	extension = ".tags"
	maxFile   = 1 << 30   // bytes of a file
	maxMemory = 128 << 20 // bytes of a repository in memory
	pageBytes = 256       // memory of a page, besides its texts and tags
)

// MaxMemory returns how many bytes of memory the tags of a repository may take, with their details, and all
// repositories in the cache together: 128 MiB, but at most a quarter of the memory budget.
func MaxMemory() int64 { return min(maxMemory, guard.Memory().Total()/4) }

// TooLarge returns the fault for a repository whose tags take more than MaxMemory. What is its name.
func TooLarge(what any) *fault.Fault {
	return fault.New(imagev1.ReadOperationFailedReason,
		"the tags of '%s' and their labels and platforms take more than %s of memory", what,
		guard.Bytes(MaxMemory())).
		WithHint("Exclude tags with spec.exclusionList, or narrow spec.filterTags of policies that need more than " +
			"names").
		Final()
}

// ErrNotFound means that a repository was not scanned, or that its file is corrupt or too large.
var ErrNotFound = errors.New("the repository has not been scanned yet")

// Key identifies an ImageRepository.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

func (k Key) file() string { return path.Join(k.Namespace, k.Name+extension) }

// Repository is the result of a scan. A loaded repository is shared and must not be modified.
type Repository struct {
	Image    string    // with registry and path
	Excluded []string  // regular expressions of excluded tags
	Scanned  time.Time // when the last scan ended that found a change
	Revision string    // changes with the tags and their details; set by Put
	Pages    []Page
}

// Page is one page of the tag list of a registry, with the data to revalidate it.
type Page struct {
	URL  string // path and query
	ETag string // of the response; may be empty
	Sum  string // digest of the response
	Next string // path and query of the next page; empty: this is the last one

	Listed int // number of tags in the response, including excluded ones
	Tags   []policy.Tag
}

// Memory estimates the memory of the page in bytes.
func (p *Page) Memory() int64 {
	n := int64(pageBytes + len(p.URL) + len(p.ETag) + len(p.Sum) + len(p.Next))
	for i := range p.Tags {
		n += p.Tags[i].Memory()
	}
	return n
}

// Memory estimates the memory of the repository in bytes.
func (r *Repository) Memory() int64 {
	n := int64(0)
	for i := range r.Pages {
		n += r.Pages[i].Memory()
	}
	return n
}

// Len returns the number of tags.
func (r *Repository) Len() int {
	n := 0
	for _, p := range r.Pages {
		n += len(p.Tags)
	}
	return n
}

// Tags iterates over the tags in the order of the registry.
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

// Identity returns the revision that Put sets: a digest of the names and digests of the tags, independent of order and
// pages.
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
		_, _ = io.WriteString(sum, line) // a hash never fails
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Store stores repositories in a directory, and caches recently used ones in memory. It is safe for concurrent use.
type Store struct {
	root *os.Root

	cache lru.Cache[Key, *Repository] // size is bytes of memory
}

// Open opens the store in a directory, and creates the directory if it does not exist.
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

// Load returns the stored result of a repository, or [ErrNotFound]. It takes the memory from the budget of ctx until
// the result is no longer used.
func (s *Store) Load(ctx context.Context, key Key) (*Repository, error) {
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
	defer f.Close() // read only
	r, err := decode(ctx, io.LimitReader(f, maxFile))
	if f := fault.As(err); f != nil && f.Reason == guard.ReasonWaitingForMemory {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: '%s' cannot be used: %w", ErrNotFound, key.file(), err)
	}
	s.add(key, r)
	return r, nil
}

// Put stores the result of a repository, and sets its revision. It returns [TooLarge] for one that Load would not read.
func (s *Store) Put(key Key, r *Repository) error {
	if r.Memory() > MaxMemory() {
		return TooLarge(r.Image)
	}
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
	s.add(key, r)
	return nil
}

func (s *Store) write(name string, r *Repository) error {
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(encode(f, r), f.Sync(), f.Close())
}

// Remove deletes a repository. It returns nil if the repository does not exist.
func (s *Store) Remove(key Key) error {
	s.cache.Remove(key)
	if err := s.root.Remove(key.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = s.root.Remove(key.Namespace) // fails unless it is empty
	return nil
}

// Collect deletes repositories that are not live and files of interrupted writes, and returns the deleted repositories.
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

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

func (s *Store) add(key Key, r *Repository) {
	most := MaxMemory()
	s.cache.Add(key, r, min(r.Memory(), most), lru.Limits{Size: most})
}

// Cached returns how many bytes of memory the cache takes.
func (s *Store) Cached() int64 { return s.cache.Size() }

// DropCache removes all repositories from the cache.
func (s *Store) DropCache() { s.cache.Clear() }
