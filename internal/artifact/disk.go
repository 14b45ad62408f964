package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	suffix = ".tar.gz"
	index  = ".index" // of the file with the digest and the segments of an archive
	prefix = ".tmp-"  // of temporary files
)

// format identifies the encoder of segments. Segments of another format are not copied, as their bytes may differ.
var format = "1 " + runtime.Version()

// sidecar is the index file of an archive. It is stored in the same directory, before the archive.
type sidecar struct {
	Format   string    `json:"format"`
	Digest   string    `json:"digest"`
	Revision string    `json:"revision,omitempty"`
	Segments []segment `json:"segments"`
}

// stamp is a file that was verified against its digest.
type stamp struct {
	info     fs.FileInfo
	digest   string
	revision string
}

// is reports whether a file is still the verified file.
func (s stamp) is(info fs.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.Size() == info.Size() && s.info.ModTime().
		Equal(info.ModTime())
}

// extensions maps the extensions of stored files to their content types.
var extensions = map[string]string{suffix: "application/gzip", ".tgz": "application/gzip", ".yaml": "application/yaml"}

// extension returns the extension of a stored file, or an empty string if the store has no such files.
func extension(base string) string {
	for ext := range extensions {
		if name, ok := strings.CutSuffix(base, ext); ok && name != "" && name != latest &&
			!strings.HasPrefix(base, ".") {
			return ext
		}
	}
	return ""
}

// removeUnfinished removes the incomplete files of a process that was killed.
func (s *Store) removeUnfinished() error {
	return filepath.WalkDir(s.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), prefix) {
			return os.Remove(file)
		}
		if artifact, ok := strings.CutSuffix(file, index); ok {
			if _, err := os.Lstat(artifact); errors.Is(err, fs.ErrNotExist) {
				return os.Remove(file)
			}
		}
		return nil
	})
}

// unfinished is a file with its sidecar, both written to temporary paths.
type unfinished struct {
	file, index string // temporary paths
	sidecar     sidecar
}

// prepare writes a file and its sidecar to temporary paths in the directory of the key. Content returns the segments
// that it wrote. An empty revision means latest@<digest>.
func (s *Store) prepare(key Key, revision string, content func(io.Writer) ([]segment, error)) (*unfinished, error) {
	dir := filepath.Join(s.dir, filepath.FromSlash(key.dir()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	now := s.clock.Now()
	u := &unfinished{sidecar: sidecar{Format: format, Revision: revision}}
	var err error
	u.file, err = writeTemporary(dir, now, func(w io.Writer) error {
		h := sha256.New()
		segments, err := content(io.MultiWriter(s.budget.Of(key.Namespace, "").Writer(w), h))
		u.sidecar.Segments, u.sidecar.Digest = segments, "sha256:"+hex.EncodeToString(h.Sum(nil))
		return err
	})
	if err != nil {
		return nil, err
	}
	if revision == "" {
		u.sidecar.Revision = latestPrefix + u.sidecar.Digest
	}
	if u.index, err = writeTemporary(dir, now, u.sidecar.encode); err != nil {
		return nil, errors.Join(err, os.Remove(u.file))
	}
	return u, nil
}

// remove removes the temporary files.
func (u *unfinished) remove() error {
	return errors.Join(ignoreMissing(os.Remove(u.file)), ignoreMissing(os.Remove(u.index)))
}

// place renames a file and its sidecar to their final paths.
func (s *Store) place(u *unfinished, relative string) (stamp, error) {
	info, err := s.rename(u, filepath.Join(s.dir, filepath.FromSlash(relative)))
	if err != nil {
		return stamp{}, errors.Join(err, u.remove())
	}
	st := stamp{info: info, digest: u.sidecar.Digest, revision: u.sidecar.Revision}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound[relative] = st
	return st, nil
}

// rename moves the sidecar first, so that a file always has one.
func (s *Store) rename(u *unfinished, full string) (fs.FileInfo, error) {
	s.placing.Lock()
	defer s.placing.Unlock()
	if err := os.Rename(u.index, full+index); err != nil {
		return nil, err
	}
	if err := os.Rename(u.file, full); err != nil {
		return nil, err
	}
	if err := syncDir(filepath.Dir(full)); err != nil {
		return nil, err
	}
	return os.Lstat(full)
}

// writeTemporary writes and syncs a new temporary file in dir, and returns its path. It removes the file on failure.
func writeTemporary(dir string, modified time.Time, content func(io.Writer) error) (name string, err error) {
	f, err := os.CreateTemp(dir, prefix)
	if err != nil {
		return "", err
	}
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Chtimes(f.Name(), modified, modified)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// previous opens the newest archive of the key to copy segments from. It returns nil if there is none.
func (s *Store) previous(key Key) (*previous, func()) {
	none := func() {}
	newest := s.newest(key, suffix)
	if newest == "" {
		return nil, none
	}
	if _, err := s.check(newest); err != nil {
		return nil, none
	}
	side, err := s.sidecar(newest)
	if err != nil || side.Format != format {
		return nil, none
	}
	f, err := s.root.Open(newest)
	if err != nil {
		return nil, none
	}
	p := &previous{ReaderAt: f, segments: make(map[string]segment, len(side.Segments))}
	for _, seg := range side.Segments {
		p.segments[seg.Key] = seg
	}
	return p, func() { _ = f.Close() } // only read
}

func (s *Store) sidecar(relative string) (sidecar, error) {
	b, err := s.root.ReadFile(relative + index)
	if err != nil {
		return sidecar{}, err
	}
	return decodeSidecar(b)
}

// encode writes a line with the digest of the JSON, then the JSON. The digest prevents the use of damaged offsets.
func (s sidecar) encode(w io.Writer) error {
	b, err := json.Marshal(s)
	if err == nil {
		_, err = fmt.Fprintf(w, "%x\n%s", sha256.Sum256(b), b)
	}
	return err
}

func decodeSidecar(b []byte) (sidecar, error) {
	sum, content, _ := bytes.Cut(b, []byte("\n"))
	if string(sum) != fmt.Sprintf("%x", sha256.Sum256(content)) {
		return sidecar{}, errors.New("the index file does not match its checksum")
	}
	var side sidecar
	return side, json.Unmarshal(content, &side)
}

// check verifies an archive against the digest that was computed when it was written. An archive that was verified
// before and has not changed since is not read again. A damaged archive is removed. A missing or damaged archive is
// downloaded from the backend.
func (s *Store) check(relative string) (stamp, error) {
	if !filepath.IsLocal(relative) || extension(path.Base(relative)) == "" {
		return stamp{}, fmt.Errorf("%q is not the path of an artifact", relative)
	}
	st, err := s.checkDisk(relative)
	if err != nil {
		return s.remote.bring(relative, err)
	}
	return st, nil
}

func (s *Store) checkDisk(relative string) (stamp, error) {
	info, err := s.root.Lstat(relative)
	if err != nil {
		return stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return stamp{}, fmt.Errorf("artifact %s is not a file", relative)
	}
	s.mu.Lock()
	known := s.sound[relative]
	s.mu.Unlock()
	if known.is(info) {
		return known, nil
	}
	return s.checking.Do("verifying an artifact", relative, func() (stamp, error) { return s.compare(relative, info) })
}

// compare verifies an archive against the digest in its sidecar.
func (s *Store) compare(relative string, info fs.FileInfo) (stamp, error) {
	f, err := s.root.Open(relative)
	if err != nil {
		return stamp{}, err
	}
	defer f.Close() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return stamp{}, err
	}
	side, err := s.sidecar(relative)
	st := stamp{info: info, digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), revision: side.Revision}
	if err == nil && side.Digest != st.digest {
		err = fmt.Errorf("its digest is %s, expected %s", st.digest, side.Digest)
	}
	if err != nil {
		return stamp{}, errors.Join(fmt.Errorf("artifact %s is damaged: %w", relative, err), s.discard(relative, info))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound[relative] = st
	return st, nil
}

// discard removes a damaged archive, unless it was replaced in the meantime.
func (s *Store) discard(relative string, damaged fs.FileInfo) error {
	s.placing.Lock()
	defer s.placing.Unlock()
	if now, err := s.root.Lstat(relative); err != nil || !(stamp{info: damaged}).is(now) {
		return ignoreMissing(err)
	}
	return s.remove(relative)
}

// remove removes an archive, then its sidecar.
func (s *Store) remove(relative string) error {
	s.mu.Lock()
	delete(s.sound, relative)
	s.mu.Unlock()
	return errors.Join(ignoreMissing(s.root.Remove(relative)), ignoreMissing(s.root.Remove(relative+index)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
