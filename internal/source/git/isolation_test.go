package git

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// privateKey returns the file of the ed25519 key of a seed. Its public half may be that of another key.
func privateKey(tb testing.TB, seed []byte, public ed25519.PublicKey) []byte {
	tb.Helper()
	block, err := ssh.MarshalPrivateKey(append(ed25519.PrivateKey(bytes.Clone(seed)), public...), "")
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

// keySecret returns the data of a Secret with the key of a seed.
func keySecret(tb testing.TB, seed []byte) map[string][]byte {
	tb.Helper()
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	return map[string][]byte{"identity": privateKey(tb, seed, public), "known_hosts": []byte("host key")}
}

// TestCredentialsThatDifferInOneByteShareNoMirror compares 200 pairs of remotes for each form of credentials.
func TestCredentialsThatDifferInOneByteShareNoMirror(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 2))
	for _, c := range []struct {
		name, url string
		secret    func(value []byte) map[string][]byte
	}{
		{name: "SSH key", url: "ssh://git@host/app",
			secret: func(seed []byte) map[string][]byte { return keySecret(t, seed) }},
		{name: "password", url: "https://host/app", secret: func(v []byte) map[string][]byte {
			return map[string][]byte{"username": []byte("git"), "password": v}
		}},
		{name: "username", url: "https://host/app", secret: func(v []byte) map[string][]byte {
			return map[string][]byte{"username": v, "password": []byte("password")}
		}},
		{name: "token", url: "https://host/app",
			secret: func(v []byte) map[string][]byte { return map[string][]byte{"bearerToken": v} }},
		{name: "client key", url: "https://host/app", secret: func(v []byte) map[string][]byte {
			return map[string][]byte{"tls.crt": []byte("certificate"), "tls.key": v}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 200 {
				value := make([]byte, ed25519.SeedSize)
				for i := range value {
					value[i] = byte(random.UintN(256))
				}
				secret := c.secret(value)
				first := keyOf(remoteOf(t, c.url, secret))
				if again := keyOf(remoteOf(t, c.url, secret)); again != first {
					t.Fatal("equal credentials have different mirrors")
				}
				value[random.IntN(len(value))] ^= byte(1 + random.UintN(255))
				if other := keyOf(remoteOf(t, c.url, c.secret(value))); other == first {
					t.Fatalf("%x: a credential that differs in one byte has the same mirror", value)
				}
			}
		})
	}
}

func remoteOf(t *testing.T, url string, secret map[string][]byte) Remote {
	t.Helper()
	credentials, err := auth.Git(url, secret)
	if err != nil {
		t.Fatal(err)
	}
	return Remote{URL: url, Credentials: credentials}
}

// TestForgedKeysReadNoMirror uses the public key of a tenant, which everybody can read, without its private key.
func TestForgedKeysReadNoMirror(t *testing.T) {
	dir := t.TempDir()
	identity, public := sshkeys.New(t)
	write(t, filepath.Join(dir, "authorized"), public)
	g := testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", filepath.Join(dir, "authorized"))
	g.Commit("private", map[string]string{"secret.yaml": "1"})
	secret := map[string][]byte{"identity": identity, "known_hosts": knownHost(t, g, filepath.Join(dir, "host"))}
	remote := remoteOf(t, g.SSHURL, secret)
	remote.URL = g.SSHURL + "/private.git"
	mirrors := filepath.Join(dir, "mirrors")
	ms := longTTL(mirrors)
	rev := updated(t, ms.View("tenant"), remote, Reference{Branch: "main"})

	raw, err := ssh.ParseRawPrivateKey(identity)
	if err != nil {
		t.Fatal(err)
	}
	forged := privateKey(t, make([]byte, ed25519.SeedSize), raw.(*ed25519.PrivateKey).Public().(ed25519.PublicKey))
	secret["identity"] = forged
	_, err = auth.Git(g.SSHURL, secret)
	if f := fault.As(err); f == nil || f.Reason != meta.AuthenticationFailedReason ||
		!strings.Contains(err.Error(), "does not belong to the private key. It must be in PEM; set the key "+
			"'password' to its passphrase, if it has one") {
		t.Errorf("a key that does not match was accepted: %v", err)
	}

	other := remoteOf(t, g.SSHURL, keySecret(t, make([]byte, ed25519.SeedSize)))
	other.URL, other.Credentials.KnownHosts = remote.URL, secret["known_hosts"]
	for _, ref := range []Reference{{Branch: "main"}, {Commit: rev.Commit}} {
		view := ms.View("hostile")
		if _, err := view.Update(t.Context(), other, ref, false); err == nil {
			t.Errorf("%+v: resolved with a key that the server refuses", ref)
		}
		if _, err := view.Tree(t.Context(), rev, Options{}); err == nil {
			t.Errorf("%+v: read with a key that the server refuses", ref)
		}
	}
}

// knownHost returns the line of known_hosts for a server, by the file of its private key.
func knownHost(t *testing.T, g *testenv.Git, file string) []byte {
	t.Helper()
	private, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	name, port, _ := strings.Cut(strings.TrimPrefix(g.SSHURL, "ssh://git@"), ":")
	return append([]byte("["+name+"]:"+port+" "), ssh.MarshalAuthorizedKey(host.PublicKey())...)
}

// TestLoginIsProvedBeforeMirrorIsRead has a server that revokes a login. A second source with the same login must not
// read what the first one fetched: neither a pinned commit, nor by a listing, nor after a restart.
func TestLoginIsProvedBeforeMirrorIsRead(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("app", map[string]string{"a.yaml": "1"})
	target, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	var revoked atomic.Bool
	proxy := testenv.FullDuplex(httputil.NewSingleHostReverseProxy(target))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if revoked.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	remote := Remote{URL: server.URL + "/app", Credentials: Credentials{Username: "git", Password: "password"}}
	dir := t.TempDir()
	ms := longTTL(dir)
	rev := updated(t, ms.View("first"), remote, Reference{Branch: "main"})
	revoked.Store(true)
	pinned := Reference{Commit: rev.Commit}
	for _, ref := range []Reference{{Branch: "main"}, pinned} {
		view := ms.View("second")
		if _, err := view.Update(t.Context(), remote, ref, false); err == nil {
			t.Errorf("%+v: resolved without a login at the server", ref)
		}
		if _, err := view.Tree(t.Context(), rev, Options{}); err == nil {
			t.Errorf("%+v: read without a login at the server", ref)
		}
	}
	restarted := longTTL(dir)
	updated(t, restarted.View("first"), remote, pinned) // it has proved its login before the restart
	if _, err := restarted.View("second").Update(t.Context(), remote, pinned, false); err == nil {
		t.Error("after a restart: resolved without a login at the server")
	}
	if _, err := restarted.View("first").Update(t.Context(), remote, Reference{Branch: "main"}, true); err == nil {
		t.Error("resolved with a revoked login")
	}
	if _, err := restarted.View("first").Update(t.Context(), remote, pinned, false); err == nil {
		t.Error("the server refused the login, but it still reads the mirror")
	}
	revoked.Store(false)
	updated(t, restarted.View("second"), remote, pinned)
}

// TestStorageLimitStopsLargeFetchesOnly fetches a repository that exceeds the limit, and then a small one.
func TestStorageLimitStopsLargeFetchesOnly(t *testing.T) {
	g := testenv.NewGit(t)
	g.Commit("large", map[string]string{"a.txt": randomText(t, 1<<20)})
	g.Commit("small", map[string]string{"a.yaml": "1"})
	dir := t.TempDir()
	ms := longTTL(dir)
	ms.Budget = artifact.NewBudget(dir, 512<<10)
	ref := Reference{Branch: "main"}
	_, err := ms.View("large").Update(t.Context(), Remote{URL: g.URL + "/large"}, ref, false)
	if f := fault.As(err); f == nil || f.Reason != meta.StorageOperationFailedReason ||
		!strings.Contains(err.Error(), "--storage-limit") {
		t.Errorf("got %v", err)
	}
	tenant := guard.WithOwner(t.Context(), "hostile")
	g.Commit("half", map[string]string{"a.txt": randomText(t, 300<<10)})
	if _, err := ms.View("half").Update(tenant, Remote{URL: g.URL + "/half"}, ref, false); fault.As(err) == nil ||
		!strings.Contains(err.Error(), "namespace 'hostile'") {
		t.Errorf("a namespace uses more than it leaves free: %v", err)
	}
	view := ms.View("small")
	rev := updated(t, view, Remote{URL: g.URL + "/small"}, ref)
	if _, err := view.Tree(t.Context(), rev, Options{}); err != nil {
		t.Error(err)
	}
}

// TestBasesOfThinPacksCountForTheStorageLimit stores a pack of a few kilobytes whose deltas name bases of 40 MiB.
func TestBasesOfThinPacksCountForTheStorageLimit(t *testing.T) {
	dir := t.TempDir()
	ms := longTTL(filepath.Join(dir, "mirrors"))
	ms.Budget = artifact.NewBudget(dir, 8<<20)
	remote := Remote{URL: "https://host/app"}
	m, err := ms.acquire("owner", remote)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := packstore.Open(filepath.Join(m.dir, "pack"), m.packs)
	if err != nil {
		t.Fatal(err)
	}
	base := []byte(randomText(t, 1<<20))
	first, second := []packstore.Object{{Kind: plumbing.BlobObject, Data: base}}, []packstore.Object{}
	for i := range 20 {
		turned := append(bytes.Clone(base[(i+1)<<10:]), base[:(i+1)<<10]...)
		first = append(first, packstore.Object{Data: packstore.Delta(base, turned),
			Base: plumbing.ComputeHash(plumbing.BlobObject, base)})
		second = append(second, packstore.Object{Data: packstore.Delta(turned, append(bytes.Clone(turned), 'x')),
			Base: plumbing.ComputeHash(plumbing.BlobObject, turned)})
	}
	u := &update{mirror: m, ctx: t.Context(), remote: remote}
	for _, c := range []struct {
		objects []packstore.Object
		want    string
	}{
		{objects: first},
		{objects: second, want: "the files in --storage-path use 8.0 MiB, and their limit is 8.0 MiB"},
	} {
		var pack bytes.Buffer
		if err := packstore.Encode(&pack, c.objects); err != nil {
			t.Fatal(err)
		}
		err := u.store(objects, &wire.Answer{Pack: &pack})
		if c.want == "" && err != nil || c.want != "" && (fault.Reason(err, "") != meta.StorageOperationFailedReason ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
