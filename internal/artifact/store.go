package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
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

// Store keeps artifacts on disk, a directory an object. A file is written beside its place, synced and renamed: a crash at
// any instruction leaves the old or the new. Nothing is read, copied from or served before this process has compared it
// with its digest; a file that is damaged is removed, for its source to write it again. It is safe for concurrent use.
type Store struct {
	dir       string
	root      *os.Root // the same, for what must not be led out of it
	host      string   // under which artifacts are advertised
	retention Retention
	clock     clock.PassiveClock
	checking  singleflight.Group
	placing   sync.Mutex // while an archive and its sidecar do not belong together

	mu    sync.Mutex
	trees map[string]registered // by the key's directory
	sound map[string]stamp      // files whose digest was checked, by path
}

// registered is the tree of the artifact last put under a key.
type registered struct {
	artifact meta.Artifact
	tree     *Tree
}

// Option changes how a store works.
type Option func(*Store)

// WithClock sets where the store takes the time from.
func WithClock(c clock.PassiveClock) Option { return func(s *Store) { s.clock = c } }

// OpenStore opens the store in dir, and removes what a killed process left half-written there. Host is the host:port that
// artifacts are advertised under.
func OpenStore(dir, host string, retention Retention, options ...Option) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, root: root, host: host, retention: retention, clock: clock.RealClock{},
		trees: map[string]registered{}, sound: map[string]stamp{},
	}
	for _, o := range options {
		o(s)
	}
	if err := s.removeUnfinished(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// Put stores the tree as the artifact of a revision, and keeps the tree at hand for [Store.Tree]. Current is the artifact
// that the object has now, nil when it has none. If the store holds this tree of this revision whole, nothing is written.
func (s *Store) Put(ctx context.Context, key Key, tree *Tree, revision string, current *meta.Artifact) (*meta.Artifact, error) {
	a, err := s.put(ctx, key, tree, revision, current)
	if err != nil {
		return nil, fault.New(meta.StorageOperationFailedReason, "cannot store the artifact of revision %s", revision).Because(err).
			WithHint("Check that --storage-path is writable and has room. The last artifact keeps being served")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trees[key.dir()] = registered{*a, tree}
	return a.DeepCopy(), nil
}

func (s *Store) put(ctx context.Context, key Key, tree *Tree, revision string, current *meta.Artifact) (*meta.Artifact, error) {
	if err := errors.Join(key.check(), ctx.Err()); err != nil {
		return nil, err
	}
	relative := path.Join(key.dir(), fileName(revision, tree))
	st, err := s.check(relative)
	updated := metav1.NewTime(s.clock.Now().Truncate(time.Second))
	switch {
	case err != nil:
		st, err = s.write(ctx, key, relative, tree)
	case current != nil && current.Path == relative && current.Digest == st.digest:
		updated = current.LastUpdateTime
	default: // an earlier revision is current again
		now := s.clock.Now()
		err = s.root.Chtimes(relative, now, now)
	}
	if err != nil {
		return nil, err
	}
	size := st.info.Size()
	a := &meta.Artifact{
		Path: relative, URL: fmt.Sprintf("http://%s/%s", s.host, relative), Revision: revision,
		Digest: st.digest, Checksum: strings.TrimPrefix(st.digest, "sha256:"), Size: &size, LastUpdateTime: updated,
	}
	if current != nil && current.Path == relative {
		a.Metadata = current.Metadata
	}
	return a, nil
}

// fileName is one for the revision and for what the tree holds of it.
func fileName(revision string, tree *Tree) string {
	sum := sha256.Sum256([]byte(revision + "\x00" + tree.root.ID))
	commit := revision[strings.LastIndexAny(revision, ":@/")+1:]
	return fmt.Sprintf("%s-%s%s", safe(commit), hex.EncodeToString(sum[:8]), suffix)
}

// safe keeps what may stand in a file's name.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, s[:min(len(s), 64)])
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

// Tree returns the tree of an artifact of this store: the one that was put last, else what its file holds.
func (s *Store) Tree(a meta.Artifact) (*Tree, error) {
	if tree := s.registered(a.Digest); tree != nil {
		return tree, nil
	}
	if err := s.holds(a); err != nil {
		return nil, err
	}
	f, err := s.root.Open(a.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	return readVerified(f, a.Digest, maxDownload)
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

// stored is an archive of a key.
type stored struct {
	path     string
	modified time.Time
}

// newest returns the path of the key's current archive, or nothing.
func (s *Store) newest(key Key) string {
	s.mu.Lock()
	current, ok := s.trees[key.dir()]
	s.mu.Unlock()
	if ok {
		return current.artifact.Path
	}
	if files := s.files(key.dir()); len(files) > 0 {
		return files[0].path
	}
	return ""
}

// files lists the archives in a key's directory, newest first.
func (s *Store) files(dir string) []stored {
	entries, err := os.ReadDir(filepath.Join(s.dir, dir))
	if err != nil {
		return nil
	}
	var out []stored
	for _, e := range entries {
		if info, err := e.Info(); err == nil && isArchive(e.Name()) && info.Mode().IsRegular() {
			out = append(out, stored{path.Join(dir, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b stored) int {
		return cmp.Or(b.modified.Compare(a.modified), strings.Compare(a.path, b.path))
	})
	return out
}

// Collect removes the artifacts of a key that retention no longer keeps, and returns their paths. Keep is the current one.
func (s *Store) Collect(key Key, keep *meta.Artifact) (removed []string, err error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	kept := 1 // the current one
	superseded := s.clock.Now()
	for _, f := range s.files(key.dir()) {
		since := s.clock.Since(superseded)
		superseded = f.modified // of the next one, which is older
		if keep != nil && f.path == keep.Path {
			continue
		}
		if kept < s.retention.Count && since < s.retention.TTL {
			kept++
			continue
		}
		err = errors.Join(err, s.remove(f.path))
		removed = append(removed, f.path)
	}
	if err != nil {
		return removed, fault.New(meta.StorageOperationFailedReason, "cannot remove superseded artifacts").Because(err)
	}
	return removed, nil
}

// Remove removes all artifacts of a key.
func (s *Store) Remove(key Key) error {
	if err := key.check(); err != nil {
		return err
	}
	s.forget(key)
	return s.root.RemoveAll(key.dir())
}

func (s *Store) forget(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trees, key.dir())
	for relative := range s.sound {
		if path.Dir(relative) == key.dir() {
			delete(s.sound, relative)
		}
	}
}

// CollectOrphans removes everything of the kind that belongs to no live object, and returns the directories. It is for the
// start: objects may have been deleted while no one was there to remove their artifacts.
func (s *Store) CollectOrphans(kind string, live []Key) (removed []string, err error) {
	alive := map[string]bool{}
	for _, k := range live {
		alive[k.dir()] = true
	}
	dirs, err := filepath.Glob(filepath.Join(s.dir, strings.ToLower(kind), "*", "*"))
	for _, dir := range dirs {
		relative, relErr := filepath.Rel(s.dir, dir)
		if relative = filepath.ToSlash(relative); relErr == nil && alive[relative] {
			continue
		}
		parts := strings.Split(relative, "/")
		s.forget(Key{kind, parts[1], parts[2]})
		err = errors.Join(err, relErr, s.root.RemoveAll(relative))
		removed = append(removed, relative)
	}
	return removed, err
}
