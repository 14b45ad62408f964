// Package packstore stores git objects in pack files. It adds packs from fetches, and reads and verifies
// single objects. It is not concerned with protocols, references or trees. The files and their invariants are
// described in docs/design/mirrors.md.
package packstore

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

var (
	// ErrNotFound is the error for an object that is in no pack.
	ErrNotFound = plumbing.ErrObjectNotFound
	// ErrDamaged is the error for a file whose content has changed since it was written.
	ErrDamaged = errors.New("a pack file is damaged")
	// ErrTooLarge is the error for an object above the maximum size.
	ErrTooLarge = fmt.Errorf("object is larger than %d MiB", maxObject>>20)
)

// maxObject is the maximum size, in bytes, of an object.
const maxObject = 64 << 20

const (
	packSuffix  = ".pack"
	indexSuffix = ".idx"
	temporary   = "tmp-"
)

// Store holds the packs of a directory. It is safe for concurrent use, and readers do not wait while a pack is added.
type Store struct {
	dir    string
	shared *Shared

	mu    sync.RWMutex
	packs []*pack // the largest first: it most likely contains an object
}

// Shared limits the memory and the open files of all stores that are opened with it, so that many stores need no more
// than one. The zero value is ready to use.
type Shared struct {
	bases deltaBases
	files pool
}

// DropCache drops the cached bases of deltas, which are read again when they are needed.
func (s *Shared) DropCache() { s.bases.clear() }

// Open opens the packs in dir, and creates dir if it does not exist. It removes incomplete files of a process that was
// killed. It returns ErrDamaged if a pack is incomplete.
func Open(dir string, shared *Shared) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, shared: shared}
	exists := map[string]bool{}
	for _, e := range entries {
		exists[e.Name()] = true
	}
	for _, e := range entries {
		name, isPack := strings.CutSuffix(e.Name(), packSuffix)
		if isPack && !strings.HasPrefix(name, temporary) {
			p, err := openPack(filepath.Join(dir, name), &shared.files)
			if err != nil {
				return nil, err
			}
			s.insert(p)
			continue
		}
		// An index is renamed before its pack, so an index without a pack is incomplete.
		if name, isIndex := strings.CutSuffix(e.Name(), indexSuffix); isIndex && exists[name+packSuffix] {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) insert(p *pack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.packs, func(q *pack) bool { return q.name == p.name }) {
		return
	}
	packs := append(slices.Clone(s.packs), p)
	slices.SortStableFunc(packs, func(a, b *pack) int { return b.count - a.count })
	s.packs = packs
}

// snapshot returns the current packs.
func (s *Store) snapshot() []*pack {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.packs
}

// Len returns the number of packs.
func (s *Store) Len() int { return len(s.snapshot()) }

// Detach keeps the store readable after its files are removed, as long as it is referenced.
func (s *Store) Detach() error {
	var errs []error
	for _, p := range s.snapshot() {
		errs = append(errs, p.detach())
	}
	s.shared.bases.clear()
	return errors.Join(errs...)
}

// Has reports whether a pack contains the object.
func (s *Store) Has(h plumbing.Hash) bool {
	_, _, err := s.find(h)
	return err == nil
}

func (s *Store) find(h plumbing.Hash) (*pack, int64, error) {
	for _, p := range s.snapshot() {
		offset, ok, err := p.find(h)
		if err != nil {
			return nil, 0, err
		}
		if ok {
			return p, offset, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: %s", ErrNotFound, h)
}

// Read returns the object with the hash, which it verifies. The error may be ErrNotFound, ErrTooLarge or ErrDamaged.
func (s *Store) Read(h plumbing.Hash) (plumbing.ObjectType, []byte, error) {
	return s.read(h, maxObject)
}

// ReadWith is [Store.Read] with memory of a lease. If the object, its bases or its deltas have more than 1 MiB, it adds
// the memory for them to the lease before it reads them.
func (s *Store) ReadWith(ctx context.Context, h plumbing.Hash, lease *guard.Lease) (plumbing.ObjectType, []byte,
	error) {
	kind, data, err := s.read(h, smallObject)
	if !errors.Is(err, errLarger) {
		return kind, data, err
	}
	p, offset, err := s.find(h)
	if err != nil {
		return 0, nil, err
	}
	bytes, err := p.memory(offset)
	if err != nil {
		return 0, nil, err
	}
	if err := lease.Grow(ctx, bytes); err != nil {
		return 0, nil, err
	}
	return s.Read(h)
}

// ReadAtMost is [Store.Read] for an object that needs less memory than most bytes, at most 64 MiB, also with its bases.
// It reports false for others, for which the memory must be available first.
func (s *Store) ReadAtMost(h plumbing.Hash, most int64) (data []byte, ok bool, err error) {
	_, data, err = s.read(h, most)
	if errors.Is(err, errLarger) {
		return nil, false, nil
	}
	return data, true, err
}

func (s *Store) read(h plumbing.Hash, most int64) (plumbing.ObjectType, []byte, error) {
	p, offset, err := s.find(h)
	if err != nil {
		return 0, nil, err
	}
	o, err := p.readAtMost(offset, most, &s.shared.bases)
	if err != nil {
		return 0, nil, err
	}
	if hash(o) != h {
		return 0, nil, fmt.Errorf("%w: %s has other data for object %s", ErrDamaged, p.name, h)
	}
	return o.kind, o.data, nil
}

// Size returns the size of an object in bytes. It does not read the whole object.
func (s *Store) Size(h plumbing.Hash) (int64, error) {
	p, offset, err := s.find(h)
	if err != nil {
		return 0, err
	}
	return p.size(offset)
}

// hash returns the hash of an object, to detect damage on disk. Collision attacks are detected when a pack is added.
func hash(o object) (sum plumbing.Hash) {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", o.kind, len(o.data))
	h.Write(o.data)
	h.Sum(sum[:0])
	return sum
}

// object is an object after its deltas were applied.
type object struct {
	kind plumbing.ObjectType
	data []byte // never changed
}

// deltaBases caches objects that are bases of deltas, since other objects may have the same bases.
type deltaBases struct {
	mu      sync.Mutex
	objects map[location]object
	size    int
}

// location is the position of an object in a pack.
type location struct {
	pack   *pack
	offset int64
}

const (
	// maxBases is the maximum size, in bytes, of the cache. When it is full, it is cleared: objects of the same
	// directory have the same few bases.
	maxBases = 16 << 20
	// baseOverhead is the memory, in bytes, of an object in the cache besides its data.
	baseOverhead = 128
)

func (b *deltaBases) get(at location) (object, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[at]
	return o, ok
}

func (b *deltaBases) put(at location, o object) {
	size := cap(o.data) + baseOverhead
	if size > maxBases/16 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects == nil || b.size+size > maxBases {
		b.objects, b.size = map[location]object{}, 0
	}
	if _, ok := b.objects[at]; !ok {
		b.objects[at] = o
		b.size += size
	}
}

// clear empties the cache, which also references the packs of its objects.
func (b *deltaBases) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects, b.size = nil, 0
}

// damaged wraps an error of reading a file that was complete when it was written.
func damaged(name string, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrDamaged) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, filepath.Base(name), err)
}
