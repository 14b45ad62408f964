package faulty

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDiskFailsOnDemand(t *testing.T) {
	d := Mount(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	work := func() string {
		cmd := exec.CommandContext(ctx, "sh", "-c", "mkdir a && echo x > a/b && mv a/b a/c && rm a/c && rmdir a")
		cmd.Dir = d.Dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return err.Error() + string(out)
		}
		return string(out)
	}
	if failed := work(); failed != "" {
		t.Fatal(failed)
	}
	clean := func() {
		cmd := exec.CommandContext(ctx, "rm", "-rf", "a")
		cmd.Dir = d.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for errno, text := range map[syscall.Errno]string{syscall.EIO: "Input/output error",
		syscall.ENOSPC: "No space left on device"} {
		for i := range 6 { // mkdir, create, write, rename, unlink, rmdir
			d.Fail(i, 1, errno)
			if failed := work(); !strings.Contains(failed, text) && !strings.Contains(failed, "I/O error") {
				t.Errorf("operation %d, %s: %s", i, errno, failed)
			}
			if failed := d.Work(); failed != 1 {
				t.Errorf("operation %d: %d failed", i, failed)
			}
			clean()
		}
	}
	if got, want := d.Kinds(), "create 2, mkdir 2, rename 2, rmdir 2, unlink 2, write 2"; got != want {
		t.Errorf("%s failed, want %s", got, want)
	}
}
