//go:build unix

package renderer

import (
	"os/exec"
	"syscall"
)

// endAll lets the end of a command's context end all processes that the command has started.
func endAll(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
}
