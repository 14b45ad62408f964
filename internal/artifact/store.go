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

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// Key identifies the object that an artifact belongs to.
type Key struct{ Kind, Namespace, Name string }

// dir returns the directory of the key, slash-separated and relative to the store.
func (k Key) dir() string { return path.Join(strings.ToLower(k.Kind), k.Namespace, k.Name) }

// check returns an error if the key is not a valid path of three directories.
func (k Key) check() error {
	for _, part := range []string{k.Kind, k.Namespace, k.Name} {
		if part == "" || strings.HasPrefix(part, ".") || strings.ContainsAny(part, `/\`) || !filepath.IsLocal(part) {
			return fmt.Errorf("%q, %q, %q do not name an object", k.Kind, k.Namespace, k.Name)
		}
	}
	return nil
}

// Retention configures which superseded artifacts are kept. The current artifact is always kept.
type Retention struct {
	TTL   time.Duration // how long an artifact is kept after it was superseded
	Count int           // maximum number of artifacts, including the current one
}

// Store keeps artifacts on disk, in one directory per object. A file is written to a temporary path, synced and
// renamed, so that a crash leaves either the old or the new file. The store reads, copies or serves a file only after
// this process has verified it against its digest. A damaged file is removed, so that its source stores it again. A
// Store is safe for concurrent use.
type Store struct {
	dir       string
	root      *os.Root // dir, for operations that must not follow symlinks out of it
	scheme    string   // http or https
	host      string   // host:port in the URLs of artifacts
	retention Retention
	clock     clock.PassiveClock
	opened    time.Time
	maxFile   int64 // maximum size in bytes of a file that is stored unchanged or downloaded
	checking  guard.Flight[stamp]
	unpacked  recent
	remote    *remote    // nil without a backend
	budget    *Budget    // nil without a bound
	noLinks   bool       // whether symlinks are left out of artifacts
	placing   sync.Mutex // held while an archive and its sidecar may not match

	mu    sync.Mutex
	trees map[string]registered // by the key's directory
	sound map[string]stamp      // verified files, by path
}

// registered is the artifact that was last put under a key.
type registered struct {
	artifact meta.Artifact
	id       string // ID of the root of the tree; empty for a file of PutFile
	tree     *Tree  // nil for such a file, and for a tree in memory
}

// Option configures a store.
type Option func(*Store)

// WithTLS sets the scheme of the URLs of artifacts to https.
func WithTLS() Option { return func(s *Store) { s.scheme = "https" } }

// WithBudget bounds what the store writes.
func WithBudget(b *Budget) Option { return func(s *Store) { s.budget = b } }

// WithoutLinks leaves symlinks out of artifacts, and of the trees that consumers of them get, as Flux does.
func WithoutLinks() Option { return func(s *Store) { s.noLinks = true } }

// OpenStore opens the store in dir, and removes incomplete files of a process that was killed. Host is the host:port in
// the URLs of artifacts.
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

// Verify returns an error if the artifact is missing or damaged, or if it does not belong to the key.
func (s *Store) Verify(_ context.Context, key Key, a *meta.Artifact) error {
	if path.Dir(a.Path) != key.dir() {
		return fmt.Errorf("artifact %s is not one of %s", a.Path, key.dir())
	}
	return s.holds(*a)
}

// holds returns an error if the file of the artifact is missing, is damaged, or has another digest.
func (s *Store) holds(a meta.Artifact) error {
	st, err := s.check(a.Path)
	if err != nil {
		return err
	}
	if st.digest != a.Digest {
		return fmt.Errorf("artifact %s has the digest %s, expected %s", a.Path, st.digest, a.Digest)
	}
	return nil
}

// Open verifies and opens the file of an artifact of this store. The caller must close it.
func (s *Store) Open(a meta.Artifact) (*os.File, error) {
	if err := s.holds(a); err != nil {
		return nil, err
	}
	return s.root.Open(a.Path)
}

// Tree returns the tree of an artifact of the key: a tree that is still known from a put, else the unpacked file. It
// returns an error if the artifact does not belong to the key.
func (s *Store) Tree(key Key, a meta.Artifact) (*Tree, error) {
	if tree := s.known(key, a.Digest); tree != nil {
		return tree, nil
	}
	if err := key.check(); err != nil {
		return nil, err
	}
	if path.Dir(a.Path) != key.dir() {
		return nil, fmt.Errorf("artifact %s is not one of %s", a.Path, key.dir())
	}
	f, err := s.Open(a)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	tree, err := readVerified(guard.WithOwner(context.Background(), key.Namespace), f, a.Digest, maxDownload)
	if err == nil {
		s.unpacked.keep(key, a.Digest, tree)
	}
	return tree, err
}

// known returns the tree of the key's artifact with the digest if it is in memory, or nil.
func (s *Store) known(key Key, digest string) *Tree {
	if tree := s.registered(key, digest); tree != nil {
		return tree
	}
	return s.unpacked.get(key, digest)
}

func (s *Store) registered(key Key, digest string) *Tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.trees[key.dir()]; r.artifact.Digest == digest {
		return r.tree
	}
	return nil
}
