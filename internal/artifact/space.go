package artifact

import (
	"errors"
	"fmt"
	"path"
	"syscall"
)

// orWithLess returns write with a retry: if the disk is full and superseded artifacts can be removed, it removes them
// and writes again. If the share of a namespace is used up, it removes artifacts of the namespace only.
func (s *Store) orWithLess(key Key, write func() (string, stamp, error)) func() (string, stamp, error) {
	return func() (string, stamp, error) {
		relative, st, err := write()
		if s.makeRoomAfter(key, err) {
			return write()
		}
		return relative, st, err
	}
}

// makeRoomAfter removes superseded artifacts if an error says that the disk, the budget or the share of the key
// is used up, and reports whether it removed any.
func (s *Store) makeRoomAfter(key Key, err error) bool {
	return isFull(err) && s.makeRoom("") || errors.Is(err, errShare) && s.makeRoom(key.Namespace)
}

// isFull reports whether an error says that the disk or the budget for it is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, errBudget)
}

// makeRoom removes all superseded artifacts of a namespace, or of all if it is empty, regardless of retention, and
// reports whether it removed any. Downloads in progress are not interrupted.
func (s *Store) makeRoom(namespace string) (removed bool) {
	for _, dir := range s.dirs() {
		if namespace != "" && path.Base(path.Dir(dir)) != namespace {
			continue
		}
		files := s.files(dir)
		if len(files) < 2 {
			continue
		}
		s.mu.Lock()
		current, ok := s.trees[dir]
		s.mu.Unlock()
		keep := files[0].path
		if ok {
			keep = current.artifact.Path
		}
		for _, f := range files {
			if f.path != keep && s.remove(f.path) == nil {
				removed = true
			}
		}
	}
	return removed
}

// advice returns a hint for an error of the disk.
func (s *Store) advice(err error) string {
	if errors.Is(err, errShare) {
		return "Remove or suspend large sources of the namespace, or raise --storage-limit"
	}
	if errors.Is(err, errBudget) {
		return "Remove or suspend large sources, or raise --storage-limit"
	}
	if !isFull(err) {
		return "Check that --storage-path is writable and has room"
	}
	free, size, ok := space(s.dir)
	if !ok {
		return "The disk of --storage-path is full: free space on it, or make it larger"
	}
	return fmt.Sprintf("The disk of --storage-path is full, %s of %s are free in %s: free space on it, or make "+
		"it larger",
		megabytes(free), megabytes(size), path.Clean(s.dir))
}

func megabytes(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
