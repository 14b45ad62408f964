package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Key names the object that an artifact belongs to.
type Key struct{ Kind, Namespace, Name string }

// dir is the key's directory, slash-separated and relative to the store.
func (k Key) dir() string { return path.Join(strings.ToLower(k.Kind), k.Namespace, k.Name) }

// check refuses a key that does not stand for one directory three levels down.
func (k Key) check() error {
	for _, part := range []string{k.Kind, k.Namespace, k.Name} {
		if part == "" || strings.HasPrefix(part, ".") || strings.ContainsAny(part, `/\`) || !filepath.IsLocal(part) {
			return fmt.Errorf("%q, %q, %q do not name an object", k.Kind, k.Namespace, k.Name)
		}
	}
	return nil
}

// Retention says which superseded artifacts are kept. The current one always is.
type Retention struct {
	TTL   time.Duration // how long one is kept after another took its place
	Count int           // how many are kept at most, the current one included
}

// Store keeps artifacts on disk, a directory an object. A file is written beside its place, synced and
// renamed: a crash at any instruction leaves the old or the new. Nothing is read, copied from or served
// before this process has compared it with its digest; a file that is damaged is removed, for its source to
// write it again. It is safe for concurrent use.
type Store struct {
	dir       string
	root      *os.Root // the same, for what must not be led out of it
	scheme    string   // http or https
	host      string   // under which artifacts are advertised
	retention Retention
	clock     clock.PassiveClock
	opened    time.Time
	maxFile   int64 // bytes of a file that is stored as it is
	checking  singleflight.Group
	unpacked  recent
	remote    *remote    // nil without a backend
	placing   sync.Mutex // while an archive and its sidecar do not belong together

	mu    sync.Mutex
	trees map[string]registered // by the key's directory
	sound map[string]stamp      // files whose digest was checked, by path
}

// registered is the artifact last put under a key.
type registered struct {
	artifact meta.Artifact
	id       string // of the tree's root; empty of a file that was put as it is
	tree     *Tree  // nil of such a file, and of a tree in memory
}

// Option changes how a store works.
type Option func(*Store)

// WithTLS makes artifacts be advertised under https.
func WithTLS() Option { return func(s *Store) { s.scheme = "https" } }

// OpenStore opens the store in dir, and removes what a killed process left half-written there. Host is the
// host:port that artifacts are advertised under.
func OpenStore(dir, host string, retention Retention, options ...Option) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, root: root, scheme: "http", host: host, retention: retention, clock: clock.RealClock{},
		maxFile: 1 << 30,
		trees:   map[string]registered{}, sound: map[string]stamp{},
	}
	for _, o := range options {
		o(s)
	}
	s.opened = s.clock.Now()
	if err := s.removeUnfinished(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// Verify tells whether the artifact is there and whole.
func (s *Store) Verify(_ context.Context, key Key, a *meta.Artifact) error {
	if path.Dir(a.Path) != key.dir() {
		return fmt.Errorf("artifact %s is not one of %s", a.Path, key.dir())
	}
	return s.holds(*a)
}

// holds tells whether the artifact's file is there, whole, and of the artifact's digest.
func (s *Store) holds(a meta.Artifact) error {
	st, err := s.check(a.Path)
	if err != nil {
		return err
	}
	if st.digest != a.Digest {
		return fmt.Errorf("artifact %s has the digest %s, not %s", a.Path, st.digest, a.Digest)
	}
	return nil
}

// Open opens the file of an artifact of this store, which is whole. The caller closes it.
func (s *Store) Open(a meta.Artifact) (*os.File, error) {
	if err := s.holds(a); err != nil {
		return nil, err
	}
	return s.root.Open(a.Path)
}

// Tree returns the tree of an artifact of this store: the one that was put last, else what its file holds.
func (s *Store) Tree(a meta.Artifact) (*Tree, error) {
	if tree := s.registered(a.Digest); tree != nil {
		return tree, nil
	}
	if tree := s.unpacked.get(a.Digest); tree != nil {
		return tree, nil
	}
	f, err := s.Open(a)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	tree, err := readVerified(f, a.Digest, maxDownload)
	if err == nil {
		s.unpacked.keep(a.Digest, tree)
	}
	return tree, err
}

func (s *Store) registered(digest string) *Tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.trees {
		if r.artifact.Digest == digest {
			return r.tree
		}
	}
	return nil
}
