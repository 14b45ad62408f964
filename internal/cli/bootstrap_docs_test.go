package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestBootstrapPage runs the commands of docs/bootstrap.md in their order and in one shell. Only the hosts of their
// URLs and the directory of its files are replaced.
func TestBootstrapPage(t *testing.T) {
	testenv.Full(t)
	blocks := testenv.Blocks(t, "bootstrap.md", "sh")
	h := newGitHost(t, "my-org/fleet", "s3cret-token")
	for _, repository := range []string{"org/fleet", "fleet"} {
		h.git.Init(repository)
	}
	c := withOwnControllers(t)
	dir := filepath.Dir(h.keyFile)
	exported := environment{"GITHUB_TOKEN": "", "GIT_PASSWORD": ""}
	writeRing(t, filepath.Join(dir, "ring.gpg"))
	hosts := strings.NewReplacer("ssh://git@example.com", h.git.SSHURL, "ssh://git@git.internal", h.git.SSHURL,
		"https://example.com", "https://"+h.address,
		"./id_ed25519", h.keyFile, "./ring.gpg", filepath.Join(dir, "ring.gpg"))
	count := 0
	for _, block := range blocks {
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			if variable, ok := strings.CutPrefix(line, "export "); ok {
				name, _, _ := strings.Cut(variable, "=")
				exported[name] = h.token
				continue
			}
			words, ok := strings.CutPrefix(line, "sluice ")
			if !ok {
				t.Errorf("the page has another command: %s", line)
				continue
			}
			args := strings.Fields(hosts.Replace(words))
			if strings.Contains(line, "https://") || args[1] == "github" {
				args = append(args, "--ca-file", h.caFile)
			}
			if args[1] == "github" {
				args = append(args, "--hostname", h.address)
			}
			exported.at(t, args...).wants(t, exitOK, "the cluster manages itself")
			count++
		}
	}
	if count < 4 {
		t.Errorf("the page has %d commands", count)
	}
	if signed := h.git.Run("org/fleet", "cat-file", "-p", "main"); !strings.Contains(signed, "gpgsig") ||
		!strings.Contains(signed, "author me <me@example.com>") {
		t.Errorf("the commit is not signed, or of another author:\n%s", signed)
	}
	h.git.Commit("fleet", map[string]string{"clusters/production/app.yaml": app("of-the-page")})
	at(t, "reconcile", "source", "git", "flux-system").wants(t, exitOK)
	appears(t, c, "of-the-page")
}

// writeRing writes a file with a private key of OpenPGP.
func writeRing(t *testing.T, file string) {
	t.Helper()
	key, err := openpgp.NewEntity("me", "", "me@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := key.SerializePrivate(f, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
