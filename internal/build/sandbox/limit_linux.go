package sandbox

import (
	"os"
	"regexp"
	"strconv"
	"syscall"
)

var dataSize = regexp.MustCompile(`(?m)^VmData:\s+(\d+) kB$`)

// limitData limits the private memory of this process. Go reserves memory in large units and keeps free memory, so the
// limit is well above the one of the heap: it stops a single large allocation before the memory is touched.
func limitData(limit int64) {
	// If the container has too little memory, the kernel ends this process first, where it ends processes one by one.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	status, err := os.ReadFile("/proc/self/status")
	found := dataSize.FindSubmatch(status)
	if err != nil || found == nil {
		return
	}
	now, _ := strconv.ParseUint(string(found[1]), 10, 64)
	most := now<<10 + uint64(limit)/2*3 + 128<<20
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most})
}
