// Package git serves every bare repository under a root over smart HTTP and SSH, fetch and push.
// It runs the git that is installed, one process a request, and trusts no path that a client names.
package git

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// services that clients may ask for.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// Stats counts what was asked of the server.
type Stats struct {
	Advertisements atomic.Int64 // of references
	Fetches        atomic.Int64 // packs sent
	Pushes         atomic.Int64
	BytesSent      atomic.Int64
}

// repository returns the directory of the bare repository that a client names; ".git" may be left out.
func repository(root, name string) (string, error) {
	clean := filepath.Clean("/" + strings.TrimPrefix(name, "/"))
	if strings.ContainsRune(clean, 0) {
		return "", fmt.Errorf("repository %q not found", name)
	}
	for _, dir := range []string{clean, clean + ".git"} {
		full := filepath.Join(root, dir)
		resolved, err := filepath.EvalSymlinks(full)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, resolved); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		if _, err := os.Stat(filepath.Join(resolved, "HEAD")); err == nil {
			return resolved, nil
		}
	}
	return "", fmt.Errorf("repository %q not found", name)
}

// command runs a service on a repository, with the settings of a server that hands out any commit it holds.
func command(service, dir, protocol string, args ...string) *exec.Cmd {
	all := append([]string{
		"-c", "uploadpack.allowAnySHA1InWant=true", "-c", "uploadpack.allowFilter=true",
		"-c", "safe.directory=*", "-c", "receive.denyCurrentBranch=ignore",
		strings.TrimPrefix(service, "git-"),
	}, args...)
	cmd := exec.Command("git", append(all, dir)...)
	cmd.Env = append(os.Environ(), "GIT_PROTOCOL="+protocol, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	return cmd
}

// Root resolves the directory that repositories are served from.
func Root(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}
