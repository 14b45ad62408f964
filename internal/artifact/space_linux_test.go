package artifact

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// onATinyDisk runs the test again in a separate process, with a directory on a disk of the given size.
func onATinyDisk(t *testing.T, size string, test func(dir string)) {
	t.Helper()
	const child = "SLUICE_TEST_TINY_DISK"
	if dir := os.Getenv(child); dir != "" {
		must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size))
		test(dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// a mount namespace of its own, so that the test needs no privileges
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestOnAFullDiskSupersededArtifactsMakeRoom(t *testing.T) {
	onATinyDisk(t, "1m", func(dir string) {
		s := openStore(t, dir, newClock())
		other := Key{Kind: "Bucket", Namespace: "apps", Name: "other"}
		kept, err := s.Put(t.Context(), other, FromMap(map[string]string{"a": string(random(100<<10, 9))}), "v1", nil)
		must(t, err)
		var last *meta.Artifact
		for i := range byte(10) { // 300 KiB each: besides the other artifact, only 3 fit on the disk
			last = put(t, s, FromMap(map[string]string{"a": string(random(300<<10, i))}), string('a'+rune(i)), last)
		}
		_, err = s.PutFile(t.Context(), webapp, ".tgz", bytes.NewReader(random(300<<10, 20)), "z", last)
		if err == nil {
			t.Fatal("the disk was not full")
		}
		last, err = s.PutFile(t.Context(), webapp, ".tgz", bytes.NewReader(random(300<<10, 20)), "z", last)
		must(t, err)
		must(t, errors.Join(s.Verify(t.Context(), webapp, last), s.Verify(t.Context(), other, kept)))
		if got := names(t, filepath.Join(s.dir, webapp.dir())); len(got) > 4 {
			t.Errorf("remaining files: %q", got)
		}
	})
}

func TestAFullDiskIsReportedAndRecoversByItself(t *testing.T) {
	onATinyDisk(t, "1m", func(dir string) {
		s := openStore(t, dir, newClock())
		a := put(t, s, FromMap(map[string]string{"a": string(random(300<<10, 1))}), "v1", nil)
		ballast := filepath.Join(dir, "ballast")
		must(t, os.WriteFile(ballast, []byte(string(random(600<<10, 2))), 0o600))
		next := FromMap(map[string]string{"a": string(random(300<<10, 3))})
		for _, put := range []func() error{
			func() error { _, err := s.Put(t.Context(), webapp, next, "v2", a); return err },
			func() error {
				_, err := s.PutFile(t.Context(), webapp, ".tgz", strings.NewReader(string(random(300<<10, 4))), "v2", a)
				return err
			},
		} {
			err := put()
			f := fault.As(err)
			if f == nil || f.Reason != meta.StorageOperationFailedReason || f.Terminal ||
				!strings.Contains(err.Error(), "of 1.0 MiB are free in "+dir) {
				t.Errorf("got %v", err)
			}
		}
		must(t, s.Verify(t.Context(), webapp, a))
		if resp, _ := get(t, "GET", newServer(t, s).URL+"/"+a.Path, nil); resp.StatusCode != 200 {
			t.Errorf("the last artifact is served with status %d", resp.StatusCode)
		}
		if got := names(t, filepath.Join(s.dir, webapp.dir())); len(got) != 2 {
			t.Errorf("remaining files: %q", got)
		}
		must(t, os.Remove(ballast))
		must(t, s.Verify(t.Context(), webapp, put(t, s, next, "v2", a)))
	})
}
