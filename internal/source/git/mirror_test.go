package git

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestReferencePrecedence(t *testing.T) {
	g := testenv.NewGit(t)
	first := g.Commit("app", map[string]string{"a.yaml": "1"})
	g.Run("app", "tag", "v1.0.0", first)
	second := g.Commit("app", map[string]string{"a.yaml": "2"})
	g.Run("app", "tag", "-a", "-m", "annotated", "v1.1.0", second)
	third := g.Commit("app", map[string]string{"a.yaml": "3"})
	g.Run("app", "update-ref", "refs/pull/7/head", first)
	for tag, commit := range map[string]string{"v0.2.0": first, "v0.2.0+build.9": first, "v0.2.0+build.10": second,
		"v0.2.0+build": first} {
		g.Run("app", "tag", tag, commit)
	}
	for name, c := range map[string]struct {
		ref  Reference
		want string
	}{
		"branch":                          {ref: Reference{Branch: "main"}, want: "main@sha1:" + third},
		"tag":                             {ref: Reference{Tag: "v1.0.0"}, want: "v1.0.0@sha1:" + first},
		"annotated tag":                   {ref: Reference{Tag: "v1.1.0"}, want: "v1.1.0@sha1:" + second},
		"highest version in range":        {ref: Reference{SemVer: ">=1.0.0"}, want: "v1.1.0@sha1:" + second},
		"range without highest version":   {ref: Reference{SemVer: "~1.0"}, want: "v1.0.0@sha1:" + first},
		"highest build of equal versions": {ref: Reference{SemVer: "0.2.x"}, want: "v0.2.0+build.10@sha1:" + second},
		"name": {ref: Reference{Name: "refs/pull/7/head"},
			want: "refs/pull/7/head@sha1:" + first},
		"commit before branch":  {ref: Reference{Branch: "main", Commit: first}, want: "main@sha1:" + first},
		"commit without branch": {ref: Reference{Commit: second}, want: "sha1:" + second},
		"name before range": {ref: Reference{Name: "refs/heads/main", SemVer: "*"},
			want: "refs/heads/main@sha1:" + third},
		"tag before range":  {ref: Reference{SemVer: "1.0.0", Tag: "v1.1.0"}, want: "v1.1.0@sha1:" + second},
		"tag before branch": {ref: Reference{Tag: "v1.0.0", Branch: "main"}, want: "v1.0.0@sha1:" + first},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			rev, err := m.Update(t.Context(), Remote{URL: g.URL + "/app"}, c.ref, false)
			if err != nil {
				t.Fatal(err)
			}
			if rev.String() != c.want {
				t.Errorf("got %s, want %s", rev, c.want)
			}
			if _, err := m.Tree(t.Context(), rev, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUpdateFetchesNewObjectsOnly(t *testing.T) {
	g := testenv.NewGit(t)
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("dir-%d/file-%d.yaml", i%10, i)] = randomText(t, 2000)
	}
	g.Commit("app", files)
	m, remote, ref := open(t), Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	updated(t, m, remote, ref)
	whole := g.Stats()

	updated(t, m, remote, ref)
	same := g.Stats()
	if same["fetches"] != whole["fetches"] {
		t.Error("fetched although the reference did not change")
	}
	g.Commit("app", map[string]string{"dir-3/file-3.yaml": "changed"})
	rev := updated(t, m, remote, ref)
	changed := g.Stats()
	if got, all := changed["bytesSent"]-same["bytesSent"], whole["bytesSent"]; got*20 > all {
		t.Errorf("one changed file of 300 needed %d bytes, the whole repository %d", got, all)
	}
	tree, err := m.Tree(t.Context(), rev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"dir-3/file-3.yaml": "changed",
		"dir-4/file-4.yaml": files["dir-4/file-4.yaml"]} {
		if b, err := fs.ReadFile(tree, name); err != nil || string(b) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTreeExcludesIgnoredFiles(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{
		"a.yaml": "a", "logo.png": "x", "deploy/b.yaml": "b", "deploy/c.md": "c",
		".sourceignore":            "*.md\n*.png\n.github/\n",
		".github/w.yaml":           "w",
		"deploy/sub/.sourceignore": "d.yaml\n", "deploy/sub/d.yaml": "d", "deploy/sub/e.yaml": "e",
		"link.yaml": "symlink:deploy/b.yaml",
		"out.yaml":  "symlink:../../etc/passwd",
	})
	m := open(t)
	rev := updated(t, m, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	tree, err := m.Tree(t.Context(), rev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(subset(tree, "deploy"), "b.yaml", "sub/e.yaml"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"logo.png", "deploy/c.md", ".github", "deploy/sub/d.yaml"} {
		if _, err := tree.Lstat(name); err == nil {
			t.Errorf("%s is in the tree", name)
		}
	}
	if b, err := tree.ReadFile("link.yaml"); err != nil || string(b) != "b" {
		t.Errorf("symlink within the tree: %q, %v", b, err)
	}
	if _, err := tree.ReadFile("out.yaml"); err == nil {
		t.Error("a symlink out of the tree was followed")
	}
	spec := "/*\n!/deploy\n"
	only, err := m.Tree(t.Context(), rev, Options{Ignore: &spec})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := only.Lstat("a.yaml"); err == nil {
		t.Error("spec.ignore was not applied")
	}
	if _, err := only.Lstat("deploy/b.yaml"); err != nil {
		t.Error(err)
	}
}

func TestTreesShareUnchangedDirectories(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"one/a.yaml": "a", "two/b.yaml": "b", "two/sub/c.yaml": "c"})
	m, remote, ref := open(t), Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	tree := func() func(string) string {
		tree, err := m.Tree(t.Context(), updated(t, m, remote, ref), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return func(name string) string {
			id, err := tree.ID(name)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	before := tree()
	g.Commit("app", map[string]string{"two/sub/c.yaml": "changed"})
	after := tree()
	for name, same := range map[string]bool{"one": true, "two/b.yaml": true, "two": false, "two/sub/c.yaml": false,
		".": false} {
		if (before(name) == after(name)) != same {
			t.Errorf("%s: same ID %v, want %v", name, !same, same)
		}
	}
	g.Commit("app", map[string]string{".sourceignore": "c.yaml\n"})
	if ignored := tree(); ignored("two") == after("two") {
		t.Error("a new rule of the parent directory did not apply")
	}
}

func TestUpdateFailures(t *testing.T) {
	g := testenv.NewGit(t, "--username", "me", "--password", "right")
	g.Commit("app", map[string]string{"a.yaml": "1"})
	g.Run("app", "tag", "v1.2.3", "main")
	me := auth.GitCredentials{Username: "me", Password: "right"}
	url := g.URL + "/app"
	for name, c := range map[string]struct {
		remote          Remote
		ref             Reference
		reason, wantErr string
	}{
		"wrong password": {remote: Remote{URL: url, Credentials: Credentials{Username: "me", Password: "wrong-s3cret"}},
			ref: Reference{Branch: "main"}, reason: "AuthenticationFailed", wantErr: "refused the login (HTTP 401). " +
				"Check the Secret of spec.secretRef, and that its user has permission to read the repository"},
		"no credentials": {remote: Remote{URL: url}, ref: Reference{Branch: "main"}, reason: "AuthenticationFailed",
			wantErr: "No login is set: set spec.secretRef, or correct spec.url"},
		"missing repository": {remote: Remote{URL: g.URL + "/none", Credentials: me}, ref: Reference{Branch: "main"},
			reason: "GitOperationFailed", wantErr: "not found"},
		"missing branch": {remote: Remote{URL: url, Credentials: me}, ref: Reference{Branch: "mian"},
			reason:  "GitOperationFailed",
			wantErr: "the remote has: main"},
		"missing tag": {remote: Remote{URL: url, Credentials: me}, ref: Reference{Tag: "v9"},
			reason:  "GitOperationFailed",
			wantErr: "v1.2.3"},
		"no version in range": {remote: Remote{URL: url, Credentials: me}, ref: Reference{SemVer: ">=2"},
			reason:  "GitOperationFailed",
			wantErr: "The highest versions are: v1.2.3"},
		"bad range": {remote: Remote{URL: url, Credentials: me}, ref: Reference{SemVer: "what"},
			reason: "GitOperationFailed",
			wantErr: `not a version range: improper constraint: "what". Use a range such as '>=1.2.0 <2.0.0' or ` +
				"'~1.4'"},
		"missing commit": {remote: Remote{URL: url, Credentials: me},
			ref: Reference{Branch: "main", Commit: strings.Repeat("0a", 20)}, reason: "GitOperationFailed",
			wantErr: "not found in branch 'main'. Correct spec.ref.commit or spec.ref.branch, or remove " +
				"spec.ref.branch to use a commit of any branch; a force push may have removed the commit"},
		"short commit": {remote: Remote{URL: url, Credentials: me}, ref: Reference{Commit: "abc"},
			reason: "GitOperationFailed", wantErr: "Use all 40 hexadecimal digits, in lower case"},
		"bad URL": {remote: Remote{URL: "https://"}, ref: Reference{}, reason: "URLInvalid", wantErr: "is not the " +
			"URL of a repository. Use https://host/path or ssh://git@host/path"},
		"unknown host": {remote: Remote{URL: "http://host.invalid/app"}, ref: Reference{}, reason: "GitOperationFailed",
			wantErr: "host.invalid': DNS has no record of 'host.invalid'. Check the URL and the cluster's DNS"},
		"connection refused": {remote: Remote{URL: "http://127.0.0.1:1/app"}, ref: Reference{},
			reason:  "GitOperationFailed",
			wantErr: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t).Update(t.Context(), c.remote, c.ref, false)
			f := fault.As(err)
			if f == nil {
				t.Fatalf("the error is not a fault: %v", err)
			}
			if f.Reason != c.reason || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %s: %v", f.Reason, err)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Error("the error contains a secret")
			}
		})
	}
}

// hostKeyCase is a case of TestSSHChecksHostKey.
type hostKeyCase struct {
	identity   []byte
	knownHosts []byte
	wantErr    string
	only       SSHAlgorithms
}

func hostKeyCases(identity []byte, entry func(key ssh.PublicKey) []byte, host ssh.Signer, stranger ssh.PublicKey,
	other []byte) map[string]hostKeyCase {
	return map[string]hostKeyCase{
		"known host": {identity: identity, knownHosts: entry(host.PublicKey()), wantErr: "", only: SSHAlgorithms{}},
		"unknown host": {identity: identity,
			knownHosts: []byte("example.com " + string(ssh.MarshalAuthorizedKey(stranger))),
			wantErr:    "is unknown", only: SSHAlgorithms{}},
		"other host key": {identity: identity, knownHosts: entry(stranger), wantErr: "not the one in known_hosts. " +
			"The host has a new key, or the connection is intercepted: verify the " +
			"key before you change known_hosts in the Secret of spec.secretRef",
			only: SSHAlgorithms{}},
		"unauthorized key": {identity: other, knownHosts: entry(host.PublicKey()), wantErr: "refused the SSH key. " +
			"Add the public key to the repository as a deploy key with permission to read " +
			"it, or correct 'identity' in the Secret of spec.secretRef",
			only: SSHAlgorithms{}},
		"allowed algorithms": {identity: identity, knownHosts: entry(host.PublicKey()), wantErr: "",
			only: SSHAlgorithms{HostKeys: []string{ssh.KeyAlgoECDSA256, host.PublicKey().Type()},
				KeyExchanges: []string{ssh.KeyExchangeCurve25519}}},
		"algorithm not allowed": {identity: identity, knownHosts: entry(host.PublicKey()),
			wantErr: "--ssh-hostkey-algos allows. Add a host key with one of these algorithms: " +
				"sk-ecdsa-sha2-nistp256@openssh.com",
			only: SSHAlgorithms{HostKeys: []string{ssh.KeyAlgoSKECDSA256}}},
		"unsupported key exchange": {identity: identity, knownHosts: entry(host.PublicKey()), wantErr: "key exchange",
			only: SSHAlgorithms{KeyExchanges: []string{ssh.InsecureKeyExchangeDH1SHA1}}},
	}
}

func TestSSHChecksHostKey(t *testing.T) {
	dir := t.TempDir()
	identity, public := sshkeys.New(t)
	write(t, filepath.Join(dir, "authorized"), public)
	g := testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", filepath.Join(dir, "authorized"))
	g.Commit("app", map[string]string{"a.yaml": "1"})
	hostKey, err := os.ReadFile(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(g.SSHURL, "ssh://git@")
	name, port, _ := strings.Cut(address, ":")
	entry := func(key ssh.PublicKey) []byte {
		return []byte(fmt.Sprintf("[%s]:%s %s", name, port, ssh.MarshalAuthorizedKey(key)))
	}
	_, strangerPublic := sshkeys.New(t)
	stranger, _, _, _, err := ssh.ParseAuthorizedKey(strangerPublic)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := sshkeys.New(t)
	for name, c := range hostKeyCases(identity, entry, host, stranger, other) {
		t.Run(name, func(t *testing.T) {
			credentials, err := auth.Git(g.SSHURL,
				map[string][]byte{"identity": c.identity, "known_hosts": c.knownHosts})
			if err != nil {
				t.Fatal(err)
			}
			_, err = open(t).Update(t.Context(),
				Remote{URL: g.SSHURL + "/app.git", Credentials: credentials, SSH: &c.only},
				Reference{Branch: "main"}, false)
			if c.wantErr == "" && err != nil ||
				c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
		})
	}
}

func TestDamagedMirrorIsFetchedAgain(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	dir := t.TempDir()
	remote, ref := Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	updated(t, NewMirrors(dir).View("owner"), remote, ref)
	packs, err := filepath.Glob(filepath.Join(dir, "*", "gen-*", "objects", "pack", "*.pack"))
	if err != nil || len(packs) == 0 {
		t.Fatal("no pack", err)
	}
	for _, p := range packs {
		if err := os.Chmod(p, 0o600); err != nil {
			t.Fatal(err)
		}
		write(t, p, []byte("garbage"))
	}
	m := NewMirrors(dir).View("owner") // after a restart
	if _, err := m.Tree(t.Context(), updated(t, m, remote, ref), Options{}); err != nil {
		t.Error(err)
	}
}

func TestMirrorIsReplacedAfterManyFetches(t *testing.T) {
	g := testenv.NewGit(t)
	m, remote, ref := open(t), Remote{URL: g.URL + "/app"}, Reference{Branch: "main"}
	first := Revision{}
	var read func() error
	for i := range maxPacks + 3 {
		g.Commit("app", map[string]string{"a.yaml": fmt.Sprint(i)})
		rev := updated(t, m, remote, ref)
		if i == maxPacks-1 {
			tree, err := m.Tree(t.Context(), rev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			first, read = rev, func() error { _, err := tree.ReadFile("a.yaml"); return err }
		}
	}
	if held, err := m.mirror.current.Load().shallow, error(nil); err != nil || len(held) > maxPacks {
		t.Errorf("the mirror has %d fetches, %v", len(held), err)
	}
	if err := read(); err != nil {
		t.Errorf("cannot read the tree of %s after the mirror was replaced: %v", first, err)
	}
}
