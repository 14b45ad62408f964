package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const protect = "#!/bin/sh\necho 'main is protected: open a pull request' >&2\nexit 1\n"

// TestBootstrapOfAProtectedBranch checks that a refused push changes nothing in the cluster.
func TestBootstrapOfAProtectedBranch(t *testing.T) {
	git := testenv.NewGit(t)
	before := git.Commit("fleet", map[string]string{"README.md": "hello"})
	hook := filepath.Join(git.Root, "fleet.git", "hooks", "pre-receive")
	if err := os.WriteFile(hook, []byte(protect), 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
	without(t)
	environment{"GIT_PASSWORD": "none"}.at(t, "bootstrap", "git", "--url", git.URL+"/fleet.git",
		"--path", "clusters/one", "--allow-insecure-http").
		wants(t, exitFailed, "declined the push to 'refs/heads/main'", "Allow this login to push to branch 'main', or "+
			"bootstrap another branch with --branch and merge it")
	if after := git.Run("fleet", "rev-parse", "main"); after != before {
		t.Errorf("the branch is at %s, want %s", after, before)
	}
	if objects := at(t, "uninstall", "--dry-run").wants(t, exitOK).err; strings.Contains(objects, "would be") {
		t.Errorf("the cluster has\n%s", objects)
	}
}

const mine = `# of the platform team
resources:
  - quota.yaml
patches:
  - target: {kind: Deployment, name: sluice}
    patch: '[{"op": "add", "path": "/metadata/annotations", "value": {"example.com/patched": "yes"}}]'
`

// TestBootstrapKeepsTheWorkOfOthers bootstraps from a repository that has files, whose branch moves while the command
// runs, and which is changed between two runs.
func TestBootstrapKeepsTheWorkOfOthers(t *testing.T) {
	testenv.Full(t)
	h := newGitHost(t, "fleet", "s3cret-token")
	c := withOwnControllers(t)
	file := "clusters/one/flux-system/kustomization.yaml"
	h.git.Commit("fleet", map[string]string{"README.md": "hello", file: mine,
		"clusters/one/flux-system/quota.yaml": app("of-the-team")})
	h.beforePush = func() { h.git.Commit("fleet", map[string]string{"clusters/one/other.yaml": app("of-another")}) }
	args := []string{"bootstrap", "git", "--url", "https://" + h.address + "/fleet.git", "--ca-file", h.caFile,
		"--path", "clusters/one"}
	h.environment().at(t, args...).wants(t, exitOK, "branch 'main' moved meanwhile", "the cluster manages itself")
	if n := h.git.Run("fleet", "rev-list", "--count", "main"); n != "3" {
		t.Errorf("the branch has %s commits, want those of both and ours", n)
	}
	want := strings.Replace(mine, "quota.yaml\n", "quota.yaml\n  - gotk-components.yaml\n  - gotk-sync.yaml\n", 1)
	h.hasFile(t, file, want)
	h.hasFile(t, "README.md", "hello")
	for _, name := range []string{"of-the-team", "of-another"} {
		appears(t, c, name)
	}
	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"}
	if err := c.Get(t.Context(), key, d); err != nil || d.Annotations["example.com/patched"] != "yes" {
		t.Errorf("the patch of the team was not applied: %v, %v", d.Annotations, err)
	}
	changed := strings.Replace(want, `"yes"`, `"again"`, 1)
	h.git.Commit("fleet", map[string]string{file: changed})
	h.environment().at(t, args...).wants(t, exitOK, "are up to date")
	h.hasFile(t, file, changed)
}

func (h *gitHost) hasFile(t *testing.T, file, want string) {
	t.Helper()
	if got := h.git.Run("fleet", "show", "main:"+file); got != strings.TrimSpace(want) {
		t.Errorf("%s is\n%s\nwant\n%s", file, got, want)
	}
}
