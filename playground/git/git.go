// Package git serves every bare repository under a root over smart HTTP and SSH, fetch and push.
// It runs the git that is installed, one process a request, and trusts no path that a client names.
package git

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// services that clients may ask for.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// stopDelay is how long a service may take to end when it is asked to.
const stopDelay = 5 * time.Second

// resolve finds the directory that repositories are served from.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// repository returns the directory of the bare repository that a client names; ".git" may be left out. A name
// that leads out of the root, itself or by a symbolic link, is not found.
func repository(root, name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("repository %q not found", name)
	}
	clean := filepath.Clean("/" + name)
	for _, dir := range []string{clean, clean + ".git"} {
		resolved, err := filepath.EvalSymlinks(filepath.Join(root, dir))
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, resolved); err == nil && filepath.IsLocal(rel) && isBare(resolved) {
			return resolved, nil
		}
	}
	return "", fmt.Errorf("repository %q not found", name)
}

func isBare(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return filepath.Base(dir) != ".git" // a work tree's
}

// command runs a service on a repository, with the settings of a server that hands out any commit it holds.
// It is asked to end when the context ends, so that it removes its locks of references, and is killed later.
func command(ctx context.Context, service, dir, protocol string, args ...string) *exec.Cmd {
	all := append([]string{
		"-c", "uploadpack.allowAnySHA1InWant=true", "-c", "uploadpack.allowFilter=true",
		"-c", "safe.directory=*", "-c", "receive.denyCurrentBranch=ignore",
		strings.TrimPrefix(service, "git-"),
	}, args...)
	cmd := exec.CommandContext(ctx, "git", append(all, dir)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopDelay
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	cmd.Env = append(inherited, "GIT_PROTOCOL="+protocol, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	return cmd
}
