//go:build linux || darwin

package artifact

import "syscall"

// space returns how many bytes a process may still write to a directory's disk, and how many there are.
func space(dir string) (free, size uint64, ok bool) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0, 0, false
	}
	block := uint64(st.Bsize)
	return st.Bavail * block, st.Blocks * block, true
}
