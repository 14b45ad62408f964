package git

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestSHA256RepositoriesAreNamed checks that a repository with SHA-256 hashes is named as what it is. A server says
// nothing about the hashes of an empty repository to a client that fetches.
func TestSHA256RepositoriesAreNamed(t *testing.T) {
	t.Parallel()
	g := testenv.NewGit(t)
	for _, repo := range []string{"empty", "full"} {
		dir := filepath.Join(g.Root, repo+".git")
		if out, err := exec.Command("git", "init", "-q", "--bare", "-b", "main", "--object-format=sha256", dir).
			CombinedOutput(); err != nil {
			t.Skipf("this git cannot make repositories with SHA-256: %v\n%s", err, out)
		}
		if repo == "full" {
			g.Commit(repo, map[string]string{"a.yaml": "a: 1\n"})
		}
		v := open(t)
		_, fetched := v.Update(t.Context(), Remote{URL: g.URL + "/" + repo}, Reference{Branch: "main"}, true)
		_, begun := open(t).Begin(t.Context(), Remote{URL: g.URL + "/" + repo}, "main")
		for what, err := range map[string]error{"fetch": fetched, "push": begun} {
			if repo == "empty" && what == "fetch" && strings.Contains(err.Error(), "is empty") {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "has object-format=sha256") ||
				strings.Contains(err.Error(), "login page") {
				t.Errorf("%s, %s: got %v", repo, what, err)
			}
		}
	}
}
