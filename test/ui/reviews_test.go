package ui

import (
	"os"
	"path/filepath"
	"strings"
)

// reviews runs `sluice review` for a pull request of the application, and returns the address of its pages. The host
// differs from that of `sluice ui`, as a browser sends cookies to all ports of a host.
func (b *bench) reviews() (string, error) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(b.Git.Root, "acme"), 0o755); err != nil {
		return "", err
	}
	if err := os.Symlink("../app.git", filepath.Join(b.Git.Root, "acme", "app.git")); err != nil {
		return "", err
	}
	b.Git.SetRef("app", "refs/pull/1/head", b.Git.Run("app", "rev-parse", "refs/heads/main"))
	b.Git.CommitTo("app", "refs/pull/1/head", map[string]string{
		"worker/worker.yaml":     strings.Replace(worker, "worker:2.4.1", "worker:2.5.0", 1),
		"checkout/checkout.yaml": configMap("checkout", "reviewed"),
	})
	config := filepath.Join(dir, "review.yaml")
	for name, content := range map[string]string{filepath.Join(dir, "token"): "token", config: `
repositories:
- name: app
  url: ` + b.Git.URL + `/acme/app
  type: gitea
  tokenFile: token
  authors: [Test]
  sources: [GitRepository/shop/app]
`} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	p, err := b.run("review", "--config", config, "--kubeconfig", b.kubeconfig)
	if err != nil {
		return "", err
	}
	b.Cleanup(func() { _ = p.stop() })
	return strings.Replace(p.address, "127.0.0.1", "localhost", 1), nil
}
