package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	backendTransfer = 5 * time.Minute  // for the upload or download of one file
	backendAnswer   = 15 * time.Second // for requests that do not transfer a file
	maxSidecar      = 64 << 20         // bytes
)

// Backend is shared storage for the files of a store that several replicas use. Names are slash-separated. A call ends
// with an error when its context ends. Errors contain no credentials. A Backend is safe for concurrent use. Package
// backendtest contains the suite that every implementation must pass.
type Backend interface {
	// Put stores content of size bytes, at least 1, and replaces a file of the same name. Readers see either the old or
	// the new file, as a whole. If Put fails or content is shorter than size, nothing changes.
	Put(ctx context.Context, name string, content io.Reader, size int64) error
	// Get opens a file. The error is fs.ErrNotExist only if the file does not exist.
	Get(ctx context.Context, name string) (io.ReadCloser, BackendFile, error)
	// Delete removes a file. It succeeds if the file does not exist.
	Delete(ctx context.Context, name string) error
	// List returns all files whose names begin with prefix, which may end within a directory's name, in any order.
	List(ctx context.Context, prefix string) ([]BackendFile, error)
}

// BackendFile describes a file in a backend.
type BackendFile struct {
	Name     string
	Size     int64     // in bytes
	Modified time.Time // by the clock of the backend, in whole seconds
}

// WithBackend makes the directory of the store a cache of a backend that several replicas share. A put succeeds only
// when the file is on disk and in the backend. A file that is requested but is not on disk is downloaded and verified
// against its digest. A removed file is removed from both.
func WithBackend(b Backend) Option {
	return func(s *Store) {
		s.remote = &remote{backend: b, store: s, same: map[string]string{}, listed: map[string]string{}}
	}
}

// remote connects a store to its backend. It is nil if the store has none. In the backend, a sidecar exists only for
// a complete file: it is written after the file and removed before it.
type remote struct {
	backend  Backend
	store    *Store
	bringing guard.Flight[stamp]

	same map[string]string // digests of files known to be in the backend, by path; guarded by store.mu
	// path of the current artifact when the files of a directory were last listed in the backend; guarded by store.mu
	listed map[string]string
}

// upload copies a file of the store to the backend. Moved is true if the file has just become the current artifact.
// If it is false, the file is uploaded only if the backend does not have it.
func (r *remote) upload(ctx context.Context, relative string, st stamp, moved bool) error {
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, backendTransfer)
	defer cancel()
	if !moved && r.has(ctx, relative, st.digest) {
		return nil
	}
	for _, name := range []string{relative, relative + index} {
		if err := r.uploadFile(ctx, name); err != nil {
			return fault.New(meta.StorageOperationFailedReason, "the storage backend did not take %s", name).
				Because(err).
				WithHint("Check the flags --storage-backend-s3-*, and that the bucket exists and is writable. " +
					"The last artifact stays available")
		}
	}
	r.know(relative, st.digest)
	return nil
}

func (r *remote) uploadFile(ctx context.Context, name string) error {
	f, err := r.store.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return r.backend.Put(ctx, name, f, info.Size())
}

// has reports whether the backend has the file. It returns false if the request fails; the upload that follows then
// returns the error.
func (r *remote) has(ctx context.Context, relative, digest string) bool {
	r.store.mu.Lock()
	known := r.same[relative] == digest
	r.store.mu.Unlock()
	if known {
		return true
	}
	side, _, err := r.sidecar(ctx, relative)
	if err != nil || side.Digest != digest {
		return false
	}
	r.know(relative, digest)
	return true
}

func (r *remote) know(relative, digest string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.same[relative] = digest
}

func (r *remote) sidecar(ctx context.Context, relative string) (sidecar, BackendFile, error) {
	body, info, err := r.backend.Get(ctx, relative+index)
	if err != nil {
		return sidecar{}, info, err
	}
	defer body.Close() // read, or given up
	b, err := io.ReadAll(io.LimitReader(body, maxSidecar))
	if err != nil {
		return sidecar{}, info, err
	}
	side, err := decodeSidecar(b)
	return side, info, err
}

// bring downloads a file that is missing or damaged on disk; why is the error for the local file. The file is
// stored only if it has the expected digest.
func (r *remote) bring(relative string, why error) (stamp, error) {
	if r == nil {
		return stamp{}, why
	}
	brought, err := r.bringing.Do("downloading an artifact", relative, func() (stamp, error) {
		if st, err := r.store.checkDisk(relative); err == nil {
			return st, nil // an earlier call has downloaded it in the meantime
		}
		ctx, cancel := context.WithTimeout(context.Background(), backendTransfer)
		defer cancel()
		st, err := r.download(ctx, relative)
		if isFull(err) && r.store.makeRoom("") {
			return r.download(ctx, relative)
		}
		return st, err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, why
	}
	if err != nil {
		return stamp{}, errors.Join(why, fmt.Errorf("cannot get %s from the storage backend: %w", relative, err))
	}
	return brought, nil
}

func (r *remote) download(ctx context.Context, relative string) (stamp, error) {
	side, _, err := r.sidecar(ctx, relative)
	if err != nil {
		return stamp{}, err
	}
	body, info, err := r.backend.Get(ctx, relative)
	if err != nil {
		return stamp{}, err
	}
	defer body.Close() // read, or given up
	dir := filepath.Join(r.store.dir, filepath.FromSlash(path.Dir(relative)))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return stamp{}, err
	}
	u := &unfinished{sidecar: side}
	u.file, err = writeTemporary(dir, info.Modified, func(w io.Writer) error {
		h := sha256.New()
		err := copyAtMost(ctx, io.MultiWriter(w, h), body, r.store.maxFile)
		if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); err == nil && got != side.Digest {
			err = fmt.Errorf("its digest is %s, expected %s", got, side.Digest)
		}
		return err
	})
	if err != nil {
		return stamp{}, err
	}
	if u.index, err = writeTemporary(dir, info.Modified, side.encode); err != nil {
		return stamp{}, errors.Join(err, os.Remove(u.file))
	}
	st, err := r.store.place(u, relative)
	if err == nil {
		r.know(relative, side.Digest)
	}
	return st, err
}

// remove removes a file and its sidecar from the backend.
func (r *remote) remove(relative string) error {
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), backendAnswer)
	defer cancel()
	r.store.mu.Lock()
	delete(r.same, relative)
	r.store.mu.Unlock()
	for _, name := range []string{relative + index, relative} {
		if err := r.backend.Delete(ctx, name); err != nil {
			return fmt.Errorf("cannot remove %s from the storage backend: %w", name, err)
		}
	}
	return nil
}

// removeAll removes the files below dir from the backend, except files in directories for which alive is true. These
// are the directories of keys, three levels deep. It returns the directories of the removed files. If alive is nil, it
// removes all files.
func (r *remote) removeAll(dir string, alive map[string]bool) (gone []string, err error) {
	if r == nil {
		return nil, nil
	}
	files, err := r.list(dir + "/")
	if err != nil {
		return nil, err
	}
	removed := map[string]bool{}
	for _, f := range files {
		of := path.Dir(f.path)
		if strings.Count(of, "/") != 2 || alive[of] { // other depths do not belong to this store
			continue
		}
		if alive != nil && !f.modified.Before(r.store.opened) { // from another replica, for a newer object
			continue
		}
		removed[of] = true
		err = errors.Join(err, r.remove(f.path))
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for of := range removed {
		delete(r.listed, of)
	}
	return slices.Sorted(maps.Keys(removed)), err
}

// list returns the files below a prefix, newest first.
func (r *remote) list(prefix string) ([]stored, error) {
	ctx, cancel := context.WithTimeout(context.Background(), backendAnswer)
	defer cancel()
	all, err := r.backend.List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s in the storage backend: %w", prefix, err)
	}
	modified := map[string]time.Time{}
	for _, f := range all {
		name := strings.TrimSuffix(f.Name, index) // list sidecars without a file too, so that they are removed
		if extension(path.Base(name)) != "" && f.Modified.After(modified[name]) {
			modified[name] = f.Modified
		}
	}
	files := make([]stored, 0, len(modified))
	for name, at := range modified {
		files = append(files, stored{name, at})
	}
	slices.SortFunc(files, newerFirst)
	return files, nil
}

// with returns the files of a directory on disk and in the backend, newest first.
func (r *remote) with(dir string, local []stored) ([]stored, error) {
	if r == nil {
		return local, nil
	}
	files, err := r.list(dir + "/")
	if err != nil {
		return local, err
	}
	for _, l := range local {
		i := slices.IndexFunc(files, func(f stored) bool { return f.path == l.path })
		if i < 0 {
			files = append(files, l)
		} else if l.modified.After(files[i].modified) {
			files[i] = l
		}
	}
	slices.SortFunc(files, newerFirst)
	return files, nil
}

// more is like with, but lists the files in the backend only once per new artifact. Current may be nil.
func (r *remote) more(dir string, current *meta.Artifact, local []stored) ([]stored, error) {
	if r == nil {
		return local, nil
	}
	keep := ""
	if current != nil {
		keep = current.Path
	}
	r.store.mu.Lock()
	done := r.listed[dir] == keep
	r.store.mu.Unlock()
	if done {
		return local, nil
	}
	files, err := r.with(dir, local)
	if err == nil {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		r.listed[dir] = keep
	}
	return files, err
}
