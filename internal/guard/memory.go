package guard

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

const (
	defaultLimit = 4 << 30  // of memory, where none is set
	minLimit     = 64 << 20 // smaller limits are not believed
)

// MemoryLimit returns the memory that the process may use, in bytes: GOMEMLIMIT, the limit of the cgroup, or 4 GiB but
// at most half of the machine's memory.
var MemoryLimit = sync.OnceValue(func() int64 {
	return memoryLimit(debug.SetMemoryLimit(-1), os.DirFS("/"))
})

// LimitMemory sets the soft memory limit of the Go runtime to nine tenths of the limit of the cgroup, unless GOMEMLIMIT
// is set. The garbage collector then works harder near the limit, instead of the kernel killing the process.
func LimitMemory() {
	before := debug.SetMemoryLimit(-1)
	limit := MemoryLimit()
	if before == math.MaxInt64 && cgroupLimit(os.DirFS("/")) > 0 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

func memoryLimit(goLimit int64, root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	if goLimit > 0 {
		limit = goLimit
	}
	if c := cgroupLimit(root); c > 0 {
		limit = min(limit, c)
	}
	if limit == math.MaxInt64 {
		limit = defaultLimit
		if total := machineMemory(root); total > 0 {
			limit = min(limit, total/2)
		}
	}
	return max(limit, minLimit)
}

// cgroupLimit returns the smallest memory limit of the cgroups of the process, of version 2 or 1; 0 if there is none.
func cgroupLimit(root fs.FS) int64 {
	smallest := int64(math.MaxInt64)
	consider := func(name string) {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			return
		}
		// "max" and the huge value of version 1 mean "unlimited"
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && n < 1<<60 {
			smallest = min(smallest, n)
		}
	}
	// In a container the cgroup of the process is usually the root of the mounted hierarchy.
	consider("sys/fs/cgroup/memory.max")
	consider("sys/fs/cgroup/memory/memory.limit_in_bytes")
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		b = nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3) // hierarchy, controllers, path
		if len(parts) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for at := path.Join("/", parts[2]); at != "/"; at = path.Dir(at) {
			consider(path.Join(dir, at, file))
		}
	}
	if smallest == math.MaxInt64 {
		return 0
	}
	return smallest
}

// machineMemory returns the memory of the machine in bytes; 0 if it is unknown.
func machineMemory(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kilobytes << 10
		}
	}
	return 0
}
