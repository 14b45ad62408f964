package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// lockFile is the file in --storage-path that a process locks. It contains the ID of the process.
const lockFile = "lock"

// storing are the controllers that need --storage-path. The kustomize-controller retains artifacts there if it can.
var storing = []string{options.SourceController, options.NotificationController, options.ImageReflectorController,
	options.ImageAutomationController}

// Lock locks --storage-path for this process, and returns a function that unlocks it. The operating system
// unlocks it when the process ends in any other way. A process that does not need the directory runs without a lock if
// it cannot be created or locked.
func Lock(o options.Options) (unlock func(), err error) {
	isRequired := slices.ContainsFunc(storing, o.Runs) || o.ForwardsEvents()
	if !isRequired && !o.Runs(options.KustomizeController) {
		return func() {}, nil
	}
	file := filepath.Join(o.StoragePath, lockFile)
	lock := flock.New(file, flock.SetPermissions(0o600))
	locked := false
	if err = os.MkdirAll(o.StoragePath, 0o700); err == nil {
		locked, err = lock.TryLock()
	}
	switch {
	case err != nil && !isRequired:
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("cannot lock --storage-path %s: %w. Use a directory that is writable and whose file "+
			"system supports locks", o.StoragePath, errors.Join(err, lock.Close()))
	case !locked:
		return nil, fmt.Errorf("--storage-path %s is in use by another process%s. Stop that process, or set "+
			"--storage-path to a directory of its own for each process", o.StoragePath, holder(file))
	}
	// only for the message above, so a failure does not matter
	_ = os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o600)
	return func() { _ = lock.Close() }, nil // fails only if the file was closed already
}

// holder returns the ID of the process that holds the lock, as far as it is known. In another container it has a
// meaning only there.
func holder(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "" // on Windows, a locked file cannot be read
	}
	if id, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil {
		return fmt.Sprintf(" (process ID %d)", id)
	}
	return ""
}
