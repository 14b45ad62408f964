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
	dir       string
	fetcher   *Fetcher
	retaining guard.Flight[struct{}]

	mu      sync.Mutex // never held while an artifact is downloaded or copied
	loaded  bool
	owners  map[string]appliedRecord
	pending map[string]*pendingArchive // by digest of the artifact
}

// pendingArchive is an archive that calls of [AppliedStore.Keep] need. It is not removed before they end.
type pendingArchive struct {
	calls int
	file  string // digest of the archive; empty until it is in the directory
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
	return &AppliedStore{dir: dir, fetcher: f, pending: map[string]*pendingArchive{}}
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
// It does nothing if that is recorded already. Owner is a unique ID, such as the UID of the object. A slow download
// delays no call for another artifact.
func (s *AppliedStore) Keep(ctx context.Context, owner string, a Applied) error {
	digest := a.Artifact.Digest
	if !isFileName(owner) || !isArchive(digest) {
		return fmt.Errorf("%q and %q do not name an owner and an artifact", owner, digest)
	}
	isRecorded, isRetained := s.begin(owner, a)
	if isRecorded {
		return nil
	}
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil && !isRetained {
		err = s.retain(ctx, a.Source, a.Artifact)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.archiveOf(digest)
	if s.pending[digest].calls--; s.pending[digest].calls == 0 {
		delete(s.pending, digest)
	}
	if err == nil && file == "" && digest != "" {
		err = errNotNeeded
	}
	before := s.owners[owner]
	if err != nil {
		err = fmt.Errorf("cannot retain the artifact of revision %s: %w", a.Artifact.Revision, err)
	} else {
		err = s.record(owner, appliedRecord{Applied: a, File: file})
	}
	return errors.Join(err, s.collect(before.Artifact.Digest), s.collect(digest))
}

// errNotNeeded is the error for an archive that no call needed any more when it was ready.
var errNotNeeded = errors.New("its archive was removed, as nothing else needed it; it is retried")

// begin reports whether a call of Keep has nothing to do, and whether the artifact is retained already for the same
// source. Unless there is nothing to do, the archive is pending.
func (s *AppliedStore) begin(owner string, a Applied) (isRecorded, isRetained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	if before, ok := s.owners[owner]; ok && meta.Equal(before.Applied, a) {
		return true, true
	}
	digest := a.Artifact.Digest
	if s.pending[digest] == nil {
		s.pending[digest] = &pendingArchive{}
	}
	s.pending[digest].calls++
	isRetained = digest == ""
	for _, r := range s.owners {
		isRetained = isRetained || r.Artifact.Digest == digest && r.Source == a.Source
	}
	return false, isRetained
}

// record writes the record of an owner. The caller holds mu.
func (s *AppliedStore) record(owner string, r appliedRecord) error {
	content, err := json.Marshal(r)
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
	s.owners[owner] = r
	return nil
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

// retain places the archive of an artifact in the directory. Calls for the same artifact share the work, which goes on
// when ctx ends. An archive of the store of this process is linked, so that it needs no space of its own. An archive
// that is retained for another source is not used before the source has it: a digest alone reads nothing.
func (s *AppliedStore) retain(ctx context.Context, source Key, a meta.Artifact) error {
	id := source.dir() + " " + a.Digest + " " + a.URL
	_, err := s.retaining.DoContext(ctx, "retaining an artifact", id, func() (none struct{}, err error) {
		ctx := context.WithoutCancel(ctx)
		if store := s.fetcher.Store; store != nil && store.Verify(ctx, source, &a) == nil &&
			s.place(a.Digest, a.Digest, func(target string) error {
				return os.Link(filepath.Join(store.dir, filepath.FromSlash(a.Path)), target)
			}) == nil {
			return none, nil
		}
		tree, err := s.fetcher.Fetch(ctx, source, a)
		if err != nil {
			return none, err
		}
		h := sha256.New()
		temporary, err := writeTemporary(s.dir, time.Now(), func(w io.Writer) error {
			return WriteArchive(ctx, io.MultiWriter(w, h), tree)
		})
		if err != nil {
			return none, err
		}
		err = s.place(a.Digest, fmt.Sprintf("sha256:%x", h.Sum(nil)), func(target string) error {
			return os.Rename(temporary, target)
		})
		return none, errors.Join(err, ignoreMissing(os.Remove(temporary)))
	})
	return err
}

// place calls move to move an archive into the directory, unless the artifact has one there already. File is the digest
// of the archive.
func (s *AppliedStore) place(digest, file string, move func(target string) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := s.pending[digest]
	if pending == nil {
		return errNotNeeded
	}
	if s.archiveOf(digest) != "" {
		return nil
	}
	target := filepath.Join(s.dir, fileOf(digest))
	if err := ignoreMissing(os.Remove(target)); err != nil { // a former removal may have failed
		return err
	}
	if err := move(target); err != nil {
		return err
	}
	pending.file = file
	return nil
}

// archiveOf returns the digest of the archive of an artifact in the directory, or "" if there is none. The caller holds
// mu.
func (s *AppliedStore) archiveOf(digest string) string {
	for _, r := range s.owners {
		if r.Artifact.Digest == digest {
			return r.File
		}
	}
	if pending := s.pending[digest]; pending != nil {
		return pending.file
	}
	return ""
}

// collect removes the archive with a digest unless an owner or a call of Keep needs it. The caller holds mu.
func (s *AppliedStore) collect(digest string) error {
	if digest == "" || s.archiveOf(digest) != "" || s.pending[digest] != nil {
		return nil
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
