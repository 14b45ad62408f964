package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
)

// watchMemory returns a function that returns the peak growth of this process since the call, in megabytes.
func watchMemory(tb testing.TB) func() float64 {
	tb.Helper()
	debug.FreeOSMemory()
	// resets the peak, proc(5)
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		tb.Fatal(err)
	}
	idle := memory(tb, "VmRSS")
	return func() float64 {
		tb.Helper()
		return memory(tb, "VmHWM") - idle
	}
}

// memory returns a line of /proc/self/status in megabytes.
func memory(tb testing.TB, name string) float64 {
	tb.Helper()
	return memoryOf(tb, os.Getpid(), name)
}

func memoryOf(tb testing.TB, pid int, name string) float64 {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) == 3 && string(fields[0]) == name+":" {
			kilobytes, err := strconv.ParseFloat(string(fields[1]), 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kilobytes / 1024
		}
	}
	tb.Fatal(fmt.Errorf("no %s", name))
	return 0
}
