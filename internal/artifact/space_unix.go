//go:build linux || darwin

package artifact

import "syscall"

// space returns the free space that is available to this process on the disk of a directory, and the size of the disk,
// both in bytes.
func space(dir string) (free, size uint64, ok bool) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return 0, 0, false
	}
	block := uint64(st.Bsize)
	return st.Bavail * block, st.Blocks * block, true
}
