package sandbox

import (
	"fmt"
	"os"
	"syscall"
)

// privateMemory returns the bytes of memory that a process has for itself; 0 if that is not known.
func privateMemory(pid int) int64 {
	var size, resident, shared int64
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // in pages, see proc(5)
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// pause stops a process until [resume]. A process that has ended stays so.
func pause(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
