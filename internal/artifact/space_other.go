//go:build !linux && !darwin

package artifact

// space is not supported on this platform.
func space(string) (free, size uint64, ok bool) { return 0, 0, false }
