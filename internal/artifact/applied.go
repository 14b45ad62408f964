package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// Applied is what an object was applied from completely.
type Applied struct {
	Source     Key           `json:"source"`     // the object that the artifact belongs to
	Artifact   meta.Artifact `json:"artifact"`   // empty if what was built is stored elsewhere, as Helm releases are
	Generation int64         `json:"generation"` // of the object
	Build      string        `json:"build"`      // the digest of what was built
}

// AppliedStore keeps the artifacts that objects behind gates were applied from. Their drift is corrected to these
// artifacts while the gates are closed, when the source may have dropped them already. Records and archives are in one
// directory: <owner>.json, and <digest>.tar.gz for all owners of an artifact. It is safe for concurrent use.
type AppliedStore struct {
	dir     string
	fetcher *Fetcher

	mu     sync.Mutex
	loaded bool
	owners map[string]appliedRecord
}

// appliedRecord is the content of the file of an owner.
type appliedRecord struct {
	Applied
	File string `json:"file"` // digest of the retained archive
}

const recordSuffix = ".json"

// Healthy returns the name under which the store keeps what an owner was healthy with last, in addition to what it was
// applied from last.
func Healthy(owner string) string { return owner + ".healthy" }

// NewAppliedStore returns the store in dir. The directory is read and created when it is needed.
func NewAppliedStore(dir string, f *Fetcher) *AppliedStore {
	return &AppliedStore{dir: dir, fetcher: f}
}

// Get returns what an owner was applied from, or nil if that is not known.
func (s *AppliedStore) Get(owner string) *Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	if r, ok := s.owners[owner]; ok {
		return &r.Applied
	}
	return nil
}

// Keep records what an owner was applied from, and retains the artifact until the owner is applied from another one.
// It does nothing if that is recorded already. Owner is a unique ID, such as the UID of the object.
func (s *AppliedStore) Keep(ctx context.Context, owner string, a Applied) error {
	if !isFileName(owner) || !isArchive(a.Artifact.Digest) {
		return fmt.Errorf("%q and %q do not name an owner and an artifact", owner, a.Artifact.Digest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	before, known := s.owners[owner]
	if known && meta.Equal(before.Applied, a) {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	record := appliedRecord{Applied: a, File: before.File}
	if a.Artifact.Digest == "" {
		record.File = ""
	} else if !known || before.Artifact.Digest != a.Artifact.Digest {
		var err error
		if record.File, err = s.retain(ctx, a.Source, a.Artifact); err != nil {
			return fmt.Errorf("cannot retain the artifact of revision %s: %w", a.Artifact.Revision, err)
		}
	}
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	temporary, err := writeTemporary(s.dir, time.Now(), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(s.dir, owner+recordSuffix)); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	s.owners[owner] = record
	return s.collect(before.Artifact.Digest)
}

// Forget removes the record of an owner, and its artifact unless another owner needs it.
func (s *AppliedStore) Forget(owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	before, known := s.owners[owner]
	if !known {
		return nil
	}
	delete(s.owners, owner)
	return errors.Join(ignoreMissing(os.Remove(filepath.Join(s.dir, owner+recordSuffix))),
		s.collect(before.Artifact.Digest))
}

// Tree returns the tree of what an owner was applied from.
func (s *AppliedStore) Tree(owner string) (*Tree, error) {
	s.mu.Lock()
	s.load()
	record, known := s.owners[owner]
	s.mu.Unlock()
	if !known || record.Artifact.Digest == "" {
		return nil, fmt.Errorf("no artifact is retained for %s", owner)
	}
	digest := record.Artifact.Digest
	if tree := s.fetcher.Known(record.Source, digest); tree != nil {
		return tree, nil
	}
	f, err := os.Open(filepath.Join(s.dir, fileOf(digest)))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	ctx := guard.WithOwner(context.Background(), record.Source.Namespace)
	tree, err := readVerified(ctx, f, record.File, maxDownload)
	if err == nil {
		s.fetcher.recent().keep(record.Source, digest, tree)
	}
	return tree, err
}

// retain places the archive of an artifact in the directory, and returns its digest. An archive of the store of this
// process is linked, so that it needs no space of its own.
func (s *AppliedStore) retain(ctx context.Context, source Key, a meta.Artifact) (digest string, err error) {
	target := filepath.Join(s.dir, fileOf(a.Digest))
	for _, r := range s.owners {
		if r.Artifact.Digest == a.Digest {
			return r.File, nil
		}
	}
	if err := ignoreMissing(os.Remove(target)); err != nil { // of a process that was killed
		return "", err
	}
	if store := s.fetcher.Store; store != nil && store.Verify(ctx, source, &a) == nil &&
		os.Link(filepath.Join(store.dir, filepath.FromSlash(a.Path)), target) == nil {
		return a.Digest, nil
	}
	tree, err := s.fetcher.Fetch(ctx, source, a)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	temporary, err := writeTemporary(s.dir, time.Now(), func(w io.Writer) error {
		return WriteArchive(ctx, io.MultiWriter(w, h), tree)
	})
	if err != nil {
		return "", err
	}
	if err := os.Rename(temporary, target); err != nil {
		return "", errors.Join(err, os.Remove(temporary))
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil)), nil
}

// collect removes the archive with a digest unless an owner needs it.
func (s *AppliedStore) collect(digest string) error {
	if digest == "" {
		return nil
	}
	for _, r := range s.owners {
		if r.Artifact.Digest == digest {
			return nil
		}
	}
	return ignoreMissing(os.Remove(filepath.Join(s.dir, fileOf(digest))))
}

// load reads the records of an earlier process, once, and removes what no record needs. A record that cannot be read is
// ignored: the drift of its owner is corrected again after the next apply.
func (s *AppliedStore) load() {
	if s.loaded {
		return
	}
	s.loaded, s.owners = true, map[string]appliedRecord{}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	needed := map[string]bool{}
	for _, e := range entries {
		owner, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || !isFileName(owner) {
			continue
		}
		var r appliedRecord
		content, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if err != nil || json.Unmarshal(content, &r) != nil || !isArchive(r.Artifact.Digest) {
			continue
		}
		s.owners[owner] = r
		needed[e.Name()], needed[fileOf(r.Artifact.Digest)] = true, true
	}
	for _, e := range entries {
		if !needed[e.Name()] {
			_ = os.Remove(filepath.Join(s.dir, e.Name())) // the next start tries again
		}
	}
}

// fileOf returns the name of the archive of an artifact.
func fileOf(digest string) string { return strings.ReplaceAll(digest, ":", "-") + suffix }

// isArchive reports whether a digest names an archive, or none.
func isArchive(digest string) bool { return digest == "" || isFileName(fileOf(digest)) }

func isFileName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && filepath.Base(name) == name && filepath.IsLocal(name)
}
