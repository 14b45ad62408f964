package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	suffix = ".tar.gz"
	index  = ".index" // of an archive's segments, beside it
	prefix = ".tmp-"
)

// Key names the object that an artifact belongs to.
type Key struct{ Kind, Namespace, Name string }

func (k Key) dir() string {
	return filepath.Join(strings.ToLower(k.Kind), k.Namespace, k.Name)
}

// Retention says which superseded artifacts are kept. The current one always is.
type Retention struct {
	TTL   time.Duration // kept at least so long
	Count int           // beyond that, kept up to so many
}

// Store keeps artifacts on disk, a directory an object. A file is written beside its place, synced and renamed: a crash at
// any instruction leaves the old or the new.
type Store struct {
	root      string
	host      string // under which artifacts are advertised
	retention Retention
	clock     clock.PassiveClock

	mu    sync.Mutex
	trees map[Key]registered
	sound map[string]stamp // files whose digest was checked, by path
}

// registered is the tree of the artifact last put under a key.
type registered struct {
	artifact meta.Artifact
	tree     *Tree
}

// stamp tells whether a file is still the one that was checked.
type stamp struct {
	size     int64
	modified time.Time
	digest   string
}

// OpenStore opens the store in root. Host is the host:port that artifacts are advertised under.
func OpenStore(root, host string, retention Retention) (*Store, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	s := &Store{root: root, host: host, retention: retention, clock: clock.RealClock{}, trees: map[Key]registered{}, sound: map[string]stamp{}}
	return s, s.removeUnfinished()
}

// removeUnfinished removes what a killed process was writing.
func (s *Store) removeUnfinished() error {
	return filepath.WalkDir(s.root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), prefix) {
			return os.Remove(file)
		}
		return err
	})
}

// Put stores the tree as the artifact of a revision. Current is the artifact that the object has now, nil when it has none:
// if it holds this tree already and is whole, nothing is written.
func (s *Store) Put(_ context.Context, key Key, tree *Tree, revision string, current *meta.Artifact) (*meta.Artifact, error) {
	name := fileName(revision, tree)
	relative := filepath.Join(key.dir(), name)
	a := meta.Artifact{Path: relative, URL: fmt.Sprintf("http://%s/%s", s.host, relative), Revision: revision}
	if current != nil && current.Path == relative && s.check(relative, current.Digest) == nil {
		url := a.URL // the address may be another since
		a = *current.DeepCopy()
		a.URL = url
	} else {
		digest, size, err := s.write(key, name, tree)
		if err != nil {
			return nil, fault.New(meta.StorageOperationFailedReason, "cannot store the artifact of revision %s", revision).Because(err).
				WithHint("Check that --storage-path is writable and has room. The last artifact keeps being served")
		}
		a.Digest, a.Checksum, a.Size = "sha256:"+digest, digest, &size
		a.LastUpdateTime = metav1.NewTime(s.clock.Now().Truncate(time.Second))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trees[key] = registered{a, tree}
	return a.DeepCopy(), nil
}

// fileName is one for the revision and for what the tree holds of it.
func fileName(revision string, tree *Tree) string {
	sum := sha256.Sum256([]byte(revision + "\x00" + tree.root.ID))
	commit := revision[strings.LastIndexAny(revision, ":@/")+1:]
	return fmt.Sprintf("%s-%s%s", safe(commit), hex.EncodeToString(sum[:4]), suffix)
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

// write makes the archive in its place and returns its digest in hex and its size.
func (s *Store) write(key Key, name string, tree *Tree) (digest string, size int64, err error) {
	dir := filepath.Join(s.root, key.dir())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", 0, err
	}
	from, closePrevious := s.previous(key)
	defer closePrevious()
	tmp, err := os.CreateTemp(dir, prefix)
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name()))
		}
	}()
	h := sha256.New()
	out := &counting{w: io.MultiWriter(tmp, h)}
	segments, err := writeArchive(out, tree, from)
	if err != nil {
		return "", 0, err
	}
	if err := tmp.Sync(); err != nil {
		return "", 0, err
	}
	info, err := tmp.Stat()
	if err != nil {
		return "", 0, err
	}
	full := filepath.Join(dir, name)
	if err := os.Rename(tmp.Name(), full); err != nil {
		return "", 0, err
	}
	digest = hex.EncodeToString(h.Sum(nil))
	s.mu.Lock()
	s.sound[filepath.Join(key.dir(), name)] = stamp{info.Size(), info.ModTime(), "sha256:" + digest}
	s.mu.Unlock()
	return digest, out.n, errors.Join(tmp.Close(), syncDir(dir), writeIndex(full, segments))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func writeIndex(file string, segments []segment) error {
	b, err := json.Marshal(segments)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(file), prefix+filepath.Base(file)+index)
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file+index)
}

// previous opens the newest sound archive of the key to copy segments from; none is no error.
func (s *Store) previous(key Key) (*previous, func()) {
	none := func() {}
	files := s.files(key)
	if len(files) == 0 {
		return nil, none
	}
	newest := filepath.Join(s.root, key.dir(), files[0].name)
	s.mu.Lock()
	st, known := s.sound[filepath.Join(key.dir(), files[0].name)]
	s.mu.Unlock()
	if !known || s.check(filepath.Join(key.dir(), files[0].name), st.digest) != nil {
		return nil, none // never copy from what was not checked
	}
	b, err := os.ReadFile(newest + index)
	if err != nil {
		return nil, none
	}
	var segments []segment
	if json.Unmarshal(b, &segments) != nil {
		return nil, none
	}
	f, err := os.Open(newest)
	if err != nil {
		return nil, none
	}
	p := &previous{ReaderAt: f, segments: make(map[string]segment, len(segments))}
	for _, seg := range segments {
		p.segments[seg.Key] = seg
	}
	return p, func() { _ = f.Close() } // only read
}

// Verify tells whether the artifact is there and whole.
func (s *Store) Verify(_ context.Context, key Key, a *meta.Artifact) error {
	if filepath.Dir(a.Path) != key.dir() {
		return fmt.Errorf("artifact %s is not one of %s", a.Path, key.dir())
	}
	return s.check(a.Path, a.Digest)
}

// check compares a file with its digest; one that was checked and did not change since is not read again.
func (s *Store) check(relative, digest string) error {
	full := filepath.Join(s.root, relative)
	info, err := os.Stat(full)
	if err != nil {
		return err
	}
	now := stamp{info.Size(), info.ModTime(), digest}
	s.mu.Lock()
	known := s.sound[relative] == now
	s.mu.Unlock()
	if known {
		return nil
	}
	f, err := os.Open(full)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("artifact %s is damaged: its digest is %s, not %s", relative, got, digest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound[relative] = now
	return nil
}

// Tree returns the tree of an artifact of this store: the one that was put, else what its file holds.
func (s *Store) Tree(a meta.Artifact) (*Tree, error) {
	s.mu.Lock()
	for _, r := range s.trees {
		if r.artifact.Digest == a.Digest {
			s.mu.Unlock()
			return r.tree, nil
		}
	}
	s.mu.Unlock()
	if !filepath.IsLocal(a.Path) {
		return nil, fmt.Errorf("artifact path %q leads out of the store", a.Path)
	}
	if err := s.check(a.Path, a.Digest); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(s.root, a.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	return ReadArchive(f)
}

// stored is an archive of a key.
type stored struct {
	name     string
	modified time.Time
}

// files lists the archives of a key, newest first.
func (s *Store) files(key Key) []stored {
	entries, err := os.ReadDir(filepath.Join(s.root, key.dir()))
	if err != nil {
		return nil
	}
	var out []stored
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), suffix) && !strings.HasPrefix(e.Name(), prefix) {
			out = append(out, stored{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b stored) int {
		if c := b.modified.Compare(a.modified); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return out
}

// Collect removes the artifacts of a key that retention no longer keeps; keep is the current one.
func (s *Store) Collect(key Key, keep *meta.Artifact) (removed []string, err error) {
	kept := 1 // the current one
	for _, f := range s.files(key) {
		relative := filepath.Join(key.dir(), f.name)
		if keep != nil && relative == keep.Path {
			continue
		}
		if kept < s.retention.Count || s.clock.Since(f.modified) < s.retention.TTL {
			kept++
			continue
		}
		full := filepath.Join(s.root, relative)
		err = errors.Join(err, os.Remove(full), ignoreMissing(os.Remove(full+index)))
		s.mu.Lock()
		delete(s.sound, relative)
		s.mu.Unlock()
		removed = append(removed, relative)
	}
	if err != nil {
		return removed, fault.New(meta.StorageOperationFailedReason, "cannot remove superseded artifacts").Because(err)
	}
	return removed, nil
}

// Remove removes all artifacts of a key.
func (s *Store) Remove(key Key) error {
	s.mu.Lock()
	delete(s.trees, key)
	for relative := range s.sound {
		if filepath.Dir(relative) == key.dir() {
			delete(s.sound, relative)
		}
	}
	s.mu.Unlock()
	return os.RemoveAll(filepath.Join(s.root, key.dir()))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
