package artifact

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// stored is a file of a key.
type stored struct {
	path     string
	modified time.Time
}

// newest returns the path of the newest file of the key with the extension, or an empty string.
func (s *Store) newest(key Key, ext string) string {
	s.mu.Lock()
	current, ok := s.trees[key.dir()]
	s.mu.Unlock()
	if ok && extension(path.Base(current.artifact.Path)) == ext {
		return current.artifact.Path
	}
	for _, f := range s.everywhere(key.dir()) {
		if extension(path.Base(f.path)) == ext {
			return f.path
		}
	}
	return ""
}

// files lists the artifacts on disk in the directory of a key, newest first.
func (s *Store) files(dir string) []stored {
	entries, err := os.ReadDir(filepath.Join(s.dir, dir))
	if err != nil {
		return nil
	}
	var out []stored
	for _, e := range entries {
		if info, err := e.Info(); err == nil && extension(e.Name()) != "" && info.Mode().IsRegular() {
			out = append(out, stored{path.Join(dir, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(out, newerFirst)
	return out
}

// everywhere lists the artifacts of a directory on disk and in the backend, newest first. If the request to the
// backend fails, it lists only those on disk.
func (s *Store) everywhere(dir string) []stored {
	files, _ := s.remote.with(dir, s.files(dir))
	return files
}

func newerFirst(a, b stored) int {
	return cmp.Or(b.modified.Compare(a.modified), strings.Compare(a.path, b.path))
}

// Collect removes the artifacts of a key that exceed the retention limits, and returns their paths. Keep is the current
// artifact.
func (s *Store) Collect(key Key, keep *meta.Artifact) (removed []string, err error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	files, err := s.remote.more(key.dir(), keep, s.files(key.dir()))
	kept := 1 // the current one
	superseded := s.clock.Now()
	for _, f := range files {
		since := s.clock.Since(superseded)
		superseded = f.modified // of the next one, which is older
		if keep != nil && f.path == keep.Path {
			continue
		}
		if kept < s.retention.Count && since < s.retention.TTL {
			kept++
			continue
		}
		err = errors.Join(err, s.removeEverywhere(f.path))
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
	_, err := s.remote.removeAll(key.dir(), nil)
	return errors.Join(err, s.root.RemoveAll(key.dir()))
}

// Release removes from memory what another process stores from now on. The files stay.
func (s *Store) Release(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trees, key.dir())
}

// removeEverywhere removes a file from the backend and from the disk. If the backend fails, the file stays on disk, so
// that the next collection tries again.
func (s *Store) removeEverywhere(relative string) error {
	if err := s.remote.remove(relative); err != nil {
		return err
	}
	return s.remove(relative)
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

// CollectOrphans removes the artifacts of the kind whose objects are not in live from the disk, and returns their
// directories. An empty namespace means all namespaces. Call it at startup, because objects may have been deleted while
// the controller was not running. Artifacts that were put after the store was opened are kept, because their objects
// may be newer than the list.
func (s *Store) CollectOrphans(kind, namespace string, live []Key) (removed []string, err error) {
	alive := dirsOf(live)
	in := cmp.Or(namespace, "*")
	dirs, err := filepath.Glob(filepath.Join(s.dir, strings.ToLower(kind), in, "*"))
	for _, dir := range dirs {
		relative, relErr := filepath.Rel(s.dir, dir)
		relative = filepath.ToSlash(relative)
		if relErr == nil && (alive[relative] || s.putSinceOpened(dir)) {
			continue
		}
		parts := strings.Split(relative, "/")
		s.forget(Key{Kind: kind, Namespace: parts[1], Name: parts[2]})
		err = errors.Join(err, relErr, s.root.RemoveAll(relative))
		removed = append(removed, relative)
	}
	return removed, err
}

// CollectSharedOrphans does the same in the backend. Only the leader may call it.
func (s *Store) CollectSharedOrphans(kind, namespace string, live []Key) (removed []string, err error) {
	if s.remote == nil {
		return nil, nil
	}
	alive := dirsOf(live)
	for _, dir := range s.dirs() {
		alive[dir] = alive[dir] || s.putSinceOpened(filepath.Join(s.dir, dir))
	}
	return s.remote.removeAll(path.Join(strings.ToLower(kind), namespace), alive)
}

// dirsOf returns the directories of keys.
func dirsOf(keys []Key) map[string]bool {
	dirs := map[string]bool{}
	for _, k := range keys {
		dirs[k.dir()] = true
	}
	return dirs
}

// putSinceOpened reports whether a file in the directory was written after the store was opened.
func (s *Store) putSinceOpened(dir string) bool {
	entries, _ := os.ReadDir(dir) // a directory that no longer exists has no entries
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		info, err := e.Info()
		return err == nil && !info.ModTime().Before(s.opened)
	})
}

// CheckAll verifies all files against their digests. It removes damaged files, so that their sources store them again,
// and returns their paths. Call it at startup, to find damaged files that are not requested.
func (s *Store) CheckAll(ctx context.Context) (damaged []string) {
	for _, dir := range s.dirs() {
		for _, f := range s.files(dir) {
			if ctx.Err() != nil {
				return damaged
			}
			if _, err := s.check(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				damaged = append(damaged, f.path)
			}
		}
	}
	return damaged
}

// dirs lists the directories of all keys.
func (s *Store) dirs() (found []string) {
	dirs, _ := filepath.Glob(filepath.Join(s.dir, "*", "*", "*")) // the pattern is valid
	for _, dir := range dirs {
		if relative, err := filepath.Rel(s.dir, dir); err == nil {
			found = append(found, filepath.ToSlash(relative))
		}
	}
	return found
}
