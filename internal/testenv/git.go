package testenv

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Git is a git server with the repositories under Root.
type Git struct {
	tb     testing.TB
	Root   string
	URL    string // http(s)://host:port
	SSHURL string // ssh://git@host:port, when asked for
	stop   func()
}

// NewGit starts a git server; args are further flags of `playground git`.
func NewGit(tb testing.TB, args ...string) *Git {
	tb.Helper()
	return ServeGit(tb, tb.TempDir(), args...)
}

// ServeGit starts a git server over an existing root.
func ServeGit(tb testing.TB, root string, args ...string) *Git {
	tb.Helper()
	lines, stop, err := startStoppable(append([]string{"git", "--root", root}, args...)...)
	if err != nil {
		tb.Fatalf("cannot start the git server: %v", err)
	}
	g := &Git{tb: tb, Root: root, URL: lines[0], stop: stop}
	if len(lines) > 1 {
		g.SSHURL = lines[1]
	}
	tb.Cleanup(stop)
	return g
}

// Stop ends the server, as an outage would.
func (g *Git) Stop() { g.stop() }

// Init makes an empty bare repository whose branch is main.
func (g *Git) Init(repo string) {
	g.tb.Helper()
	g.run("", nil, "init", "-q", "--bare", "-b", "main", g.dir(repo))
}

// Commit adds a commit to the branch main that sets files to contents; a content that is empty deletes the file.
// It makes the repository if need be and returns the commit's hash.
func (g *Git) Commit(repo string, files map[string]string) string {
	g.tb.Helper()
	return g.CommitTo(repo, "refs/heads/main", files)
}

// CommitTo is Commit for any reference.
func (g *Git) CommitTo(repo, ref string, files map[string]string) string {
	g.tb.Helper()
	if _, err := os.Stat(g.dir(repo)); os.IsNotExist(err) {
		g.Init(repo)
	}
	index := filepath.Join(g.tb.TempDir(), "index")
	env := []string{"GIT_INDEX_FILE=" + index}
	parent, err := g.try(repo, env, "", "rev-parse", "--verify", "-q", ref)
	args := []string{"commit-tree", "-m", "change"}
	if err == nil {
		g.git(repo, env, "", "read-tree", parent)
		args = append(args, "-p", parent)
	}
	var info strings.Builder
	for name, content := range files {
		if content == "" {
			info.WriteString("0 0000000000000000000000000000000000000000\t" + name + "\n")
			continue
		}
		mode := "100644"
		if target, ok := strings.CutPrefix(content, "symlink:"); ok {
			mode, content = "120000", target
		}
		info.WriteString(mode + " " + g.git(repo, env, content, "hash-object", "-w", "--stdin") + "\t" + name + "\n")
	}
	g.git(repo, env, info.String(), "update-index", "--add", "--index-info")
	commit := g.git(repo, env, "", append(args, g.git(repo, env, "", "write-tree"))...)
	g.git(repo, env, "", "update-ref", ref, commit)
	return commit
}

// Run runs git in the repository and returns what it printed.
func (g *Git) Run(repo string, args ...string) string {
	g.tb.Helper()
	return g.git(repo, nil, "", args...)
}

// Stats returns the server's counts: advertisements, fetches, pushes and bytesSent.
func (g *Git) Stats() map[string]int64 {
	g.tb.Helper()
	resp, err := http.Get(g.URL + "/-/stats")
	if err != nil {
		g.tb.Fatal(err)
	}
	defer resp.Body.Close() // read to its end
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.tb.Fatal(err)
	}
	stats := map[string]int64{}
	if err := json.Unmarshal(b, &stats); err != nil {
		g.tb.Fatal(err)
	}
	return stats
}

func (g *Git) dir(repo string) string { return filepath.Join(g.Root, repo+".git") }

func (g *Git) git(repo string, env []string, stdin string, args ...string) string {
	g.tb.Helper()
	out, err := g.try(repo, env, stdin, args...)
	if err != nil {
		g.tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (g *Git) try(repo string, env []string, stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"--git-dir", g.dir(repo)}, args...)...)
	cmd.Env = append(os.Environ(), append(env,
		"GIT_AUTHOR_NAME=Test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=Test", "GIT_COMMITTER_EMAIL=test@example.com",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (g *Git) run(dir string, env []string, args ...string) {
	g.tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		g.tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
