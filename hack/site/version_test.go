package main

import (
	"os/exec"
	"testing"
)

func TestNewestVersion(t *testing.T) {
	dir := t.TempDir()
	if got := newestVersion(dir); got != unreleased {
		t.Errorf("a directory without git has the version %s", got)
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=x", "-c",
			"user.email=x@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "x")
	if got := newestVersion(dir); got != unreleased {
		t.Errorf("a repository without tags has the version %s", got)
	}
	for _, tag := range []string{"v1.9.0", "v1.10.0-rc.1", "v1.10.0", "nightly", "v1/x"} {
		git("tag", tag)
	}
	if got := newestVersion(dir); got != "v1.10.0" {
		t.Errorf("the newest version is %s", got)
	}
}
