package differential

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// openSSH is a server of the Debian package openssh-server.
type openSSH struct {
	dir, user, address, port string
}

// startOpenSSH starts a server for the user of the test, with a key of a type as host key and another as user key. It
// skips the test where the package is not installed: hack/needs sshd installs it.
func startOpenSSH(t *testing.T, kind string) *openSSH {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		if program = "/usr/sbin/sshd"; !exists(program) {
			t.Skip("the program sshd is missing: run 'hack/needs sshd' to install the package openssh-server")
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if me.Uid == "0" { // where sshd confines what it runs before the login
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &openSSH{dir: t.TempDir(), user: me.Username}
	for _, name := range []string{"host", "user", "other"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", "", "-f", filepath.Join(s.dir, name)).
			CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Rename(filepath.Join(s.dir, "user.pub"), filepath.Join(s.dir, "authorized")); err != nil {
		t.Fatal(err)
	}
	s.address = testenv.FreeAddress(t)
	_, s.port, _ = net.SplitHostPort(s.address)
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%s\nHostKey %s/host\nAuthorizedKeysFile %[2]s/authorized\n"+
		"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"+
		"LogLevel VERBOSE\nPermitUserEnvironment no\n", s.port, s.dir)
	if err := os.WriteFile(filepath.Join(s.dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(program, "-D", "-e", "-f", filepath.Join(s.dir, "config"))
	log := &strings.Builder{}
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	testenv.Eventually(t, "sshd answers", func() error {
		conn, err := net.DialTimeout("tcp", s.address, time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return s
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// remote returns a repository below a directory, with the login of a key.
func (s *openSSH) remote(t *testing.T, repository, key string) git.Remote {
	t.Helper()
	private, errKey := os.ReadFile(filepath.Join(s.dir, key))
	host, errHost := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	if err := errors.Join(errKey, errHost); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("ssh://%s@%s%s", s.user, s.address, repository)
	login, err := auth.Git(url, map[string][]byte{"identity": private,
		"known_hosts": fmt.Appendf(nil, "[127.0.0.1]:%s %s", s.port, host)})
	if err != nil {
		t.Fatal(err)
	}
	return git.Remote{URL: url, Credentials: login}
}

// TestGitOverOpenSSH fetches from and pushes to OpenSSH's server, with keys of each type, and compares with git.
func TestGitOverOpenSSH(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := startOpenSSH(t, kind)
			g := testenv.NewGit(t)
			r := rand.New(rand.NewPCG(1, 16))
			dir := filepath.Join(g.Root, "app.git")
			before := gitFiles{}
			view := git.NewMirrors(t.TempDir()).View("ssh")
			for range 3 {
				g.Commit("app", randomFiles(r, before))
				before = filesByGit(t, dir, "main")
				revision, err := view.Update(t.Context(), s.remote(t, dir, "user"), git.Reference{Branch: "main"}, true)
				if err != nil {
					t.Fatal(err)
				}
				tree, err := view.Tree(t.Context(), revision, git.Options{Ignore: &everything})
				if err != nil {
					t.Fatal(err)
				}
				wantFiles(t, "fetched", filesOf(t, tree), before)
				pushRandom(t, view, s.remote(t, dir, "user"), dir, r, map[string]string{})
			}
			run(t, dir, "fsck", "--full", "--strict")

			_, err := git.NewMirrors(t.TempDir()).View("ssh").Update(t.Context(), s.remote(t, dir, "other"),
				git.Reference{Branch: "main"}, true)
			if f := fault.As(err); f == nil || f.Reason != "AuthenticationFailed" {
				t.Errorf("with an unknown key: %v", err)
			}
			_, err = git.NewMirrors(t.TempDir()).View("ssh").Update(t.Context(), s.remote(t, dir+"x", "user"),
				git.Reference{Branch: "main"}, true)
			if err == nil || !strings.Contains(err.Error(), "does not appear to be a git repository") {
				t.Errorf("without a repository: %v", err)
			}
		})
	}
}
