package manager_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/process/storage"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// lockedDir is the environment variable that makes the test below hold a lock as another process.
const lockedDir = "SLUICE_TEST_LOCKED_DIR"

func TestStoragePathIsLockedForOneProcess(t *testing.T) {
	var o options.Options
	o.BindFlags(pflag.NewFlagSet("", pflag.ContinueOnError)) // sets the defaults
	if o.StoragePath = os.Getenv(lockedDir); o.StoragePath != "" {
		if _, err := storage.Lock(o); err != nil {
			t.Fatal(err)
		}
		fmt.Println("locked")
		select {} // until it is killed
	}
	o.StoragePath = filepath.Join(t.TempDir(), "data")
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), lockedDir+"="+o.StoragePath)
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "locked\n" {
		t.Fatalf("the other process printed %q: %v", line, err)
	}
	_, err = storage.Lock(o)
	if err == nil || !strings.Contains(err.Error(), "--storage-path "+o.StoragePath+" is in use by another process") ||
		!strings.Contains(err.Error(), "Stop that process") {
		t.Errorf("got %v", err)
	}
	if err := manager.Run(t.Context(), nil, o); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second process started: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	testenv.Eventually(t, "the lock of a process that was killed is free", func() error {
		unlock, err := storage.Lock(o)
		if err != nil {
			return err
		}
		unlock()
		return nil
	})
	unlock, err := storage.Lock(o)
	if err != nil {
		t.Errorf("after it was unlocked: %v", err)
	} else {
		unlock()
	}
}

// TestOnlyControllersThatStoreNeedTheLock has a directory that this process has locked already, and one that cannot be
// created.
func TestOnlyControllersThatStoreNeedTheLock(t *testing.T) {
	o := options.Options{Controllers: options.AllControllers, StoragePath: t.TempDir()}
	unlock, err := storage.Lock(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	for controller, want := range map[string]bool{options.GatingController: true, options.KustomizeController: false} {
		single := options.Options{Controllers: []string{controller}, StoragePath: o.StoragePath}
		if _, err := storage.Lock(single); (err == nil) != want {
			t.Errorf("%s: %v", controller, err)
		}
	}
	readOnly := options.Options{Controllers: []string{options.KustomizeController}, StoragePath: "/dev/null/data"}
	if _, err := storage.Lock(readOnly); err != nil {
		t.Errorf("a controller that does not need the directory: %v", err)
	}
	readOnly.Controllers = options.AllControllers
	if _, err := storage.Lock(readOnly); err == nil || !strings.Contains(err.Error(), "/dev/null/data") {
		t.Errorf("a directory that cannot be created: %v", err)
	}
}
