// Package packstore keeps git objects in pack files: it adds the packs that fetches bring, and reads objects
// out of them. It knows no protocol, no reference and no tree; every object that it gives has the hash that
// it was asked for by.
package packstore

import (
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
)

var (
	// ErrNotFound says that no pack holds the object.
	ErrNotFound = plumbing.ErrObjectNotFound
	// ErrDamaged says that a file does not hold what was once written to it.
	ErrDamaged = errors.New("a pack file is damaged")
	// ErrTooLarge says that an object is larger than one may be.
	ErrTooLarge = fmt.Errorf("object is larger than %d MiB", maxObject>>20)
)

// maxObject bounds, in bytes, what is held in memory of one object.
const maxObject = 64 << 20

const (
	packSuffix  = ".pack"
	indexSuffix = ".idx"
	temporary   = "tmp-"
)

// Store is the packs of one directory. It is safe for concurrent use, and readers do not wait for a pack that is added.
// It holds no file open: the process has a bounded number of handles for all stores.
type Store struct {
	dir string

	mu    sync.RWMutex
	packs []*pack // the largest first: it most likely holds what is asked for
}

// Open opens the packs in dir, which it makes if need be, and removes what a killed process left unfinished.
// ErrDamaged says that a pack is not whole.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	whole := map[string]bool{}
	for _, e := range entries {
		whole[e.Name()] = true
	}
	for _, e := range entries {
		name, isPack := strings.CutSuffix(e.Name(), packSuffix)
		if isPack && !strings.HasPrefix(name, temporary) {
			p, err := openPack(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			s.insert(p)
			continue
		}
		// The index is put in place before its pack: one without is half of a pack that was never finished.
		if name, isIndex := strings.CutSuffix(e.Name(), indexSuffix); isIndex && whole[name+packSuffix] {
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

// snapshot returns the packs as they are now.
func (s *Store) snapshot() []*pack {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.packs
}

// Len returns how many packs there are.
func (s *Store) Len() int { return len(s.snapshot()) }

// Detach keeps all that the store holds readable while there is anyone to read it, even when its files are removed now.
func (s *Store) Detach() error {
	var errs []error
	for _, p := range s.snapshot() {
		errs = append(errs, p.detach())
	}
	shared.forget()
	return errors.Join(errs...)
}

// Has tells whether a pack holds the object.
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

// Read returns an object, verified to have the hash. ErrNotFound, ErrTooLarge and ErrDamaged say why it cannot.
func (s *Store) Read(h plumbing.Hash) (plumbing.ObjectType, []byte, error) {
	p, offset, err := s.find(h)
	if err != nil {
		return 0, nil, err
	}
	o, err := p.read(offset, &shared)
	if err != nil {
		return 0, nil, err
	}
	if hash(o) != h {
		return 0, nil, fmt.Errorf("%w: %s does not hold object %s", ErrDamaged, p.name, h)
	}
	return o.kind, o.data, nil
}

// Size returns the length of an object in bytes without reading all of it.
func (s *Store) Size(h plumbing.Hash) (int64, error) {
	p, offset, err := s.find(h)
	if err != nil {
		return 0, err
	}
	return p.size(offset)
}

// hash guards against damage on disk; that nobody made two objects of one hash was checked when the pack came in.
func hash(o object) (sum plumbing.Hash) {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", o.kind, len(o.data))
	h.Write(o.data)
	h.Sum(sum[:0])
	return sum
}

// object is a whole object, its deltas applied.
type object struct {
	kind plumbing.ObjectType
	data []byte // never changed
}

// bases are objects that others were built on, and that others may be built on again.
type bases struct {
	mu   sync.Mutex
	held map[place]object
	size int
}

// place is where in which pack an object is.
type place struct {
	pack   *pack
	offset int64
}

// maxBases bounds, in bytes, what is kept. All of it goes when more comes: neighbours in a tree build on the same few.
const maxBases = 16 << 20

// shared are the bases of all stores, so that many stores take no more memory than one.
var shared bases

func (b *bases) get(at place) (object, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.held[at]
	return o, ok
}

func (b *bases) put(at place, o object) {
	if len(o.data) > maxBases/16 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil || b.size+len(o.data) > maxBases {
		b.held, b.size = map[place]object{}, 0
	}
	if _, ok := b.held[at]; !ok {
		b.held[at] = o
		b.size += len(o.data)
	}
}

// forget drops what is kept, and with it the packs that it comes from.
func (b *bases) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.size = nil, 0
}

// damaged marks an error of reading a file that was whole when it was written.
func damaged(name string, err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrDamaged) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, filepath.Base(name), err)
}
