package git

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// identityEnv makes this test binary an SSH client for git, which need not be installed: it holds the private
// key's file.
const identityEnv = "PLAYGROUND_TEST_IDENTITY"

func TestMain(m *testing.M) {
	if identity := os.Getenv(identityEnv); identity != "" {
		if err := sshClient(identity, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// sshClient does what git asks of ssh: [-o SendEnv=GIT_PROTOCOL] [-p PORT] git@HOST COMMAND.
func sshClient(identity string, args []string) error {
	key, err := os.ReadFile(identity)
	if err != nil {
		return err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return err
	}
	port := args[slices.Index(args, "-p")+1]
	user, host, _ := strings.Cut(args[len(args)-2], "@")
	client, err := ssh.Dial("tcp", host+":"+port, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // a server of the test
	})
	if err != nil {
		return err
	}
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	if err := session.Setenv("GIT_PROTOCOL", os.Getenv("GIT_PROTOCOL")); err != nil {
		return err
	}
	session.Stdin, session.Stdout, session.Stderr = os.Stdin, os.Stdout, os.Stderr
	return session.Run(args[len(args)-1])
}

// newIdentity writes a private key and an authorized_keys line of it.
func newIdentity(t *testing.T, dir, name string) (private string, authorized []byte) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	private = filepath.Join(dir, name)
	if err := os.WriteFile(private, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return private, ssh.MarshalAuthorizedKey(line)
}

// serveOverSSH also returns the environments of a client that may log in and of one that may not.
func serveOverSSH(t *testing.T) (s *Server, known, unknown []string) {
	t.Helper()
	dir := t.TempDir()
	mine, line := newIdentity(t, dir, "mine")
	other, _ := newIdentity(t, dir, "other")
	keys := filepath.Join(dir, "authorized_keys")
	if err := os.WriteFile(keys, append([]byte("# who may log in\n\n"), append(line, "\n# end of the list\n"...)...),
		0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	client := func(identity string) []string {
		return []string{"GIT_SSH=" + self, "GIT_SSH_VARIANT=ssh", identityEnv + "=" + identity}
	}
	s = serve(t, Options{SSHAddr: "127.0.0.1:0", SSHHostKey: filepath.Join(dir, "host"), SSHAuthorizedKeys: keys})
	return s, client(mine), client(other)
}

func TestCloneAndPushOverSSH(t *testing.T) {
	for _, version := range []string{"0", "2"} {
		t.Run("version "+version, func(t *testing.T) {
			s, known, _ := serveOverSSH(t)
			env := append(known, config("protocol.version="+version)...)
			roundTrip(t, s.SSHURL+"/app.git", env)
			if got := counts(t, s); got["pushes"] != 2 || got["fetches"] != 1 {
				t.Errorf("two pushes and one clone with content were counted as %v", got)
			}
			before := counts(t, s)
			git(t, "", env, "ls-remote", s.SSHURL+"/app")
			if after := counts(t, s); after["advertisements"]-before["advertisements"] != 1 ||
				after["fetches"] != before["fetches"] {
				t.Errorf("a listing was counted as %v after %v", after, before)
			}
		})
	}
}

func TestSSHRefuses(t *testing.T) {
	s, known, unknown := serveOverSSH(t)
	for what, c := range map[string]struct {
		url  string
		env  []string
		args []string
		want string
	}{
		"a key that is not authorized":   {s.SSHURL + "/app", unknown, nil, "unable to authenticate"},
		"a repository that is not there": {s.SSHURL + "/none", known, nil, `repository "/none" not found`},
		"a path that goes up":            {s.SSHURL + "/../../etc", known, nil, "not found"},
		"another command": {s.SSHURL + "/app", known, []string{"--upload-pack=cat"},
			"only git-upload-pack and git-receive-pack"},
		"a command after it": {s.SSHURL + "/app", known,
			[]string{"--upload-pack=git-upload-pack /app; cat"}, "only git-upload-pack and git-receive-pack"},
	} {
		t.Run(what, func(t *testing.T) {
			out, err := try("", c.env, append(append([]string{"ls-remote"}, c.args...), c.url)...)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("got %v, %q; want %q", err, out, c.want)
			}
		})
	}
}

// TestAuthorizedKeysAreReadAtEachLogin adds the only key of a client after its first login was refused, and removes it.
func TestAuthorizedKeysAreReadAtEachLogin(t *testing.T) {
	dir := t.TempDir()
	mine, line := newIdentity(t, dir, "mine")
	keys := filepath.Join(dir, "authorized_keys")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"GIT_SSH=" + self, "GIT_SSH_VARIANT=ssh", identityEnv + "=" + mine}
	write := func(content []byte) {
		if err := os.WriteFile(keys, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(nil)
	s := serve(t, Options{SSHAddr: "127.0.0.1:0", SSHHostKey: filepath.Join(dir, "host"), SSHAuthorizedKeys: keys})
	for _, content := range [][]byte{nil, line, nil} {
		write(content)
		out, err := try("", env, "ls-remote", s.SSHURL+"/app")
		if accepted := err == nil; accepted != (content != nil) {
			t.Errorf("with keys %q: got %v, %s", content, err, out)
		}
	}
}

func TestHostKeyIsMadeOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "host")
	first, err := loadHostKey(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := loadHostKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := ssh.FingerprintSHA256(first.PublicKey()), ssh.FingerprintSHA256(again.PublicKey()); a != b {
		t.Errorf("another key: %s, %s", a, b)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAuthorizedKeysNameTheBadLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("# fine\n\nnot a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadAuthorized(file); err == nil || !strings.Contains(err.Error(), file+":3:") {
		t.Errorf("got %v", err)
	}
	if _, err := loadAuthorized(file + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestUnquote(t *testing.T) {
	for word, c := range map[string]struct {
		want string
		ok   bool
	}{
		`'/app.git'`: {"/app.git", true},
		`/app.git`:   {"/app.git", true},
		`'it'\''s'`:  {"it's", true},
		`'a b;c'`:    {"a b;c", true},
		`a\ b`:       {"a b", true},
		`'open`:      {"", false},
		`'`:          {"", false},
		`a b`:        {"", false},
		`a;b`:        {"", false},
		`$(id)`:      {"", false},
		``:           {"", false},
	} {
		t.Run(word, func(t *testing.T) {
			if got, ok := unquote(word); ok != c.ok || ok && got != c.want {
				t.Errorf("got %q, %t; want %q, %t", got, ok, c.want, c.ok)
			}
		})
	}
}

func FuzzUnquote(f *testing.F) {
	for _, seed := range []string{"/app.git", "it's", "a!b", "", `\`, "a b;c$(id)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		_, _ = unquote(path) // does not panic
		quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
		if got, ok := unquote(quoted); path != "" && (!ok || got != path) {
			t.Errorf("%s is read as %q, %t", quoted, got, ok)
		}
	})
}
