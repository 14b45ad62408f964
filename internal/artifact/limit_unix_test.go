//go:build unix

package artifact

import (
	"os/signal"
	"syscall"
	"testing"
)

// limitFileSize makes writes beyond this many bytes fail, like a full disk.
func limitFileSize(t *testing.T, bytes uint64) (restore func()) {
	t.Helper()
	var was syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	signal.Ignore(syscall.SIGXFSZ)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: was.Max}))
	return func() {
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
		signal.Reset(syscall.SIGXFSZ)
	}
}
