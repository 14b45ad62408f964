package testenv

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Git is a git server for the repositories below Root.
type Git struct {
	tb     testing.TB
	Root   string
	URL    string // http(s)://host:port
	SSHURL string // ssh://git@host:port, with --ssh-addr
	CA     []byte // PEM of the certificate authority, with --tls-dir
	stop   func()
}

// NewGit starts a git server. args are further flags of `playground git`.
func NewGit(tb testing.TB, args ...string) *Git {
	tb.Helper()
	return ServeGit(tb, tb.TempDir(), args...)
}

// ServeGit starts a git server for the repositories of an existing directory.
func ServeGit(tb testing.TB, root string, args ...string) *Git {
	tb.Helper()
	c, err := StartPlayground(append([]string{"git", "--root", root}, args...)...)
	if err != nil {
		tb.Fatalf("cannot start the git server: %v", err)
	}
	tb.Cleanup(c.Stop)
	g := &Git{tb: tb, Root: root, URL: c.Printed[0], stop: c.Stop}
	if len(c.Printed) > 1 {
		g.SSHURL = c.Printed[1]
	}
	if i := slices.Index(args, "--tls-dir"); i >= 0 {
		if g.CA, err = os.ReadFile(filepath.Join(args[i+1], "ca.crt")); err != nil {
			tb.Fatal(err)
		}
	}
	return g
}

// Stop stops the server.
func (g *Git) Stop() { g.stop() }

// Init creates an empty bare repository with the branch main.
func (g *Git) Init(repo string) {
	g.tb.Helper()
	if out, err := exec.Command("git", "init", "-q", "--bare", "-b", "main", g.dir(repo)).CombinedOutput(); err != nil {
		g.tb.Fatalf("git init: %v\n%s", err, out)
	}
}

// Symlink returns the content that makes a file a symbolic link.
func Symlink(target string) string { return symlink + target }

// Executable returns the content that makes a file executable.
func Executable(content string) string { return executable + content }

// Submodule returns the content that makes a path a submodule at a commit.
func Submodule(commit string) string { return submodule + commit }

// Delete is the content that makes a commit delete a file.
const Delete = ""

const (
	symlink    = "symlink:"
	executable = "executable:"
	submodule  = "submodule:"
)

// Commit adds a commit to the branch main that writes files. Their contents are text, or made by [Delete], [Symlink],
// [Executable] or [Submodule]. It creates the repository if it does not exist, and returns the hash of the commit.
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
	parent, err := g.try(repo, "", "rev-parse", "--verify", "-q", ref+"^{commit}")
	if err != nil {
		parent = ""
	}
	return g.git(repo, stream(ref, parent, files), "fast-import", "--quiet", "--force")
}

// ForcePush sets a reference to a new commit without parents, and returns its hash.
func (g *Git) ForcePush(repo, ref string, files map[string]string) string {
	g.tb.Helper()
	return g.git(repo, stream(ref, "", files), "fast-import", "--quiet", "--force")
}

// SetRef sets a reference, such as refs/tags/v1 or refs/pull/1/head, to a commit.
func (g *Git) SetRef(repo, ref, commit string) {
	g.tb.Helper()
	g.git(repo, "", "update-ref", ref, commit)
}

// Run runs git in the repository and returns its output.
func (g *Git) Run(repo string, args ...string) string {
	g.tb.Helper()
	return g.git(repo, "", args...)
}

// Object writes a raw object, such as a signed commit, and returns its hash.
func (g *Git) Object(repo, kind, content string) string {
	g.tb.Helper()
	return g.git(repo, content, "hash-object", "-w", "--stdin", "-t", kind)
}

// Stats returns the server's counters: advertisements, fetches, pushes, bytesSent and bytesReceived.
func (g *Git) Stats() map[string]int64 {
	g.tb.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.CA)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	resp, err := client.Get(g.URL + "/-/stats")
	if err != nil {
		g.tb.Fatal(err)
	}
	defer resp.Body.Close()
	stats := map[string]int64{}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		g.tb.Fatal(err)
	}
	return stats
}

// stream returns a commit in the format of git fast-import, which needs one process per commit for any number of files.
func stream(ref, parent string, files map[string]string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "feature done\ncommit %s\nmark :1\ncommitter Test <test@example.com> %d +0000\ndata 6\nchange\n",
		ref, time.Now().Unix())
	if parent != "" {
		fmt.Fprintf(&s, "from %s\n", parent)
	}
	for name, content := range files {
		mode := "100644"
		if target, ok := strings.CutPrefix(content, symlink); ok {
			mode, content = "120000", target
		} else if program, ok := strings.CutPrefix(content, executable); ok {
			mode, content = "100755", program
		}
		if commit, ok := strings.CutPrefix(content, submodule); ok {
			fmt.Fprintf(&s, "M 160000 %s %s\n", commit, name)
			continue
		}
		if content == Delete {
			fmt.Fprintf(&s, "D %s\n", name)
			continue
		}
		fmt.Fprintf(&s, "M %s inline %s\ndata %d\n%s\n", mode, name, len(content), content)
	}
	s.WriteString("\nget-mark :1\ndone\n")
	return s.String()
}

func (g *Git) dir(repo string) string { return filepath.Join(g.Root, repo+".git") }

func (g *Git) git(repo, stdin string, args ...string) string {
	g.tb.Helper()
	out, err := g.try(repo, stdin, args...)
	if err != nil {
		g.tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (g *Git) try(repo, stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"--git-dir", g.dir(repo)}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=Test",
		"GIT_COMMITTER_EMAIL=test@example.com")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
