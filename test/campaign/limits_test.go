package campaign

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

const (
	memoryLimit = 1 << 30 // of the container in config/manager
	cgroups     = "/sys/fs/cgroup"
)

var cgroupCount atomic.Int64

// cgroup is a memory limit of the kernel, of version 1 or 2. Without the right to create one, dir is empty.
type cgroup struct {
	dir    string
	events string // the file that counts kills
}

// newCgroup creates a cgroup with the memory limit of a deployment. It ends with the test.
func newCgroup(t *testing.T) cgroup {
	t.Helper()
	name := fmt.Sprintf("sluice-campaign-%d-%d", os.Getpid(), cgroupCount.Add(1))
	for _, version := range []struct{ dir, limit, events string }{
		{dir: filepath.Join(cgroups, "memory"), limit: "memory.limit_in_bytes", events: "memory.oom_control"},
		{dir: cgroups, limit: "memory.max", events: "memory.events"},
	} {
		dir := filepath.Join(version.dir, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // its processes have ended
		limit := []byte(strconv.Itoa(memoryLimit))
		if os.WriteFile(filepath.Join(dir, version.limit), limit, 0o600) == nil {
			return cgroup{dir, filepath.Join(dir, version.events)}
		}
	}
	t.Logf("no cgroup can be created here: the process has GOMEMLIMIT only, and nothing kills it above the limit")
	return cgroup{}
}

// command returns the command that runs a program in the cgroup.
func (c cgroup) command(program string, args ...string) []string {
	if c.dir == "" {
		return append([]string{"env", fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit/10*9), program}, args...)
	}
	enter := `echo $$ > "$0/cgroup.procs" && exec "$@"`
	return append([]string{"sh", "-c", enter, c.dir, program}, args...)
}

// kills returns how many processes the kernel has killed for their memory.
func (c cgroup) kills(t *testing.T) int {
	t.Helper()
	if c.dir == "" {
		return 0
	}
	f, err := os.Open(c.events)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no count of kills", c.events)
	return 0
}

// peakMemory returns the most memory that a process has used, in MiB.
func peakMemory(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	kilobytes, err := strconv.Atoi(fields[0])
	return kilobytes >> 10, err
}
