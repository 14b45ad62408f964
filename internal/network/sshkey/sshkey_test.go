package sshkey_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
)

func TestGenerate(t *testing.T) {
	for name, c := range map[string]struct {
		spec sshkey.Spec
		want string
	}{
		"ed25519":    {spec: sshkey.Spec{Algorithm: "ed25519"}, want: "ssh-ed25519"},
		"ecdsa p256": {spec: sshkey.Spec{Algorithm: "ecdsa", Curve: "p256"}, want: "ecdsa-sha2-nistp256"},
		"ecdsa p384": {spec: sshkey.Spec{Algorithm: "ecdsa", Curve: "p384"}, want: "ecdsa-sha2-nistp384"},
		"ecdsa p521": {spec: sshkey.Spec{Algorithm: "ecdsa", Curve: "p521"}, want: "ecdsa-sha2-nistp521"},
		"rsa":        {spec: sshkey.Spec{Algorithm: "rsa", Bits: 2048}, want: "ssh-rsa"},
	} {
		t.Run(name, func(t *testing.T) {
			private, err := sshkey.Generate(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			public, err := sshkey.Public(private, "")
			if err != nil {
				t.Fatal(err)
			}
			if kind, _, _ := strings.Cut(string(public), " "); kind != c.want {
				t.Errorf("got a key of type %s, want %s", kind, c.want)
			}
			data := map[string][]byte{"identity": private, "known_hosts": []byte("example.com " + string(public))}
			if _, err := auth.Git("ssh://git@example.com/app", data); err != nil {
				t.Errorf("the controllers cannot read the key: %v", err)
			}
		})
	}
	for name, spec := range map[string]sshkey.Spec{
		"unknown algorithm":   {Algorithm: "dsa"},
		"unknown curve":       {Algorithm: "ecdsa", Curve: "p224"},
		"too few bits":        {Algorithm: "rsa", Bits: 1024},
		"too many bits":       {Algorithm: "rsa", Bits: 1 << 20},
		"not a multiple of 8": {Algorithm: "rsa", Bits: 2049},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sshkey.Generate(spec); err == nil || !strings.Contains(err.Error(), "choose") {
				t.Errorf("got %v, want an error with the valid values", err)
			}
		})
	}
}

func TestPublicWithPassphrase(t *testing.T) {
	private, err := sshkey.Generate(sshkey.Spec{Algorithm: "ed25519"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParseRawPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := sshkey.Public(private, "")
	if err != nil {
		t.Fatal(err)
	}
	locked := pem.EncodeToMemory(block)
	if got, err := sshkey.Public(locked, "open sesame"); err != nil || string(got) != string(want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := sshkey.Public(locked, ""); err == nil || !strings.Contains(err.Error(), "passphrase") {
		t.Errorf("without the passphrase: got %v", err)
	}
	if _, err := sshkey.Public([]byte("no key"), ""); err == nil {
		t.Error("no error for an invalid key")
	}
}

// TestScan reads the host key of an SSH server.
func TestScan(t *testing.T) {
	dir := t.TempDir()
	client, err := sshkey.Generate(sshkey.Spec{Algorithm: "ed25519"})
	if err != nil {
		t.Fatal(err)
	}
	authorized, err := sshkey.Public(client, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "authorized"), authorized, 0o600); err != nil {
		t.Fatal(err)
	}
	git := testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", filepath.Join(dir, "authorized"))
	u, err := url.Parse(git.SSHURL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sshkey.Scan(t.Context(), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := sshkey.Public(host, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "[127.0.0.1]:" + u.Port() + " " + string(public); string(got.KnownHosts) != want {
		t.Errorf("got %q, want %q", got.KnownHosts, want)
	}
	if len(got.Fingerprints) != 1 || !strings.HasPrefix(got.Fingerprints[0], "ssh-ed25519 SHA256:") {
		t.Errorf("fingerprints are %q", got.Fingerprints)
	}
}

// TestScanFailures checks the errors for hosts that are unreachable, silent, or not SSH servers.
func TestScanFailures(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			accepted <- conn // sends nothing
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		<-accepted
	}()
	if _, err := sshkey.Scan(ctx, listener.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("silent host: got %v", err)
	}
	web := testenv.NewGit(t)
	if _, err := sshkey.Scan(t.Context(), strings.TrimPrefix(web.URL, "http://")); err == nil {
		t.Error("no error for a web server")
	}
	if _, err := sshkey.Scan(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("unreachable host: got %v", err)
	}
}

// TestInconsistentKeysAreRefused has files with the private key of one pair and the public key of another.
func TestInconsistentKeysAreRefused(t *testing.T) {
	const seed = 7
	own := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	victim := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	forgedEd25519 := append(bytes.Clone(own[:ed25519.SeedSize]), victim[ed25519.SeedSize:]...)
	ecdsaKeys := [2]*ecdsa.PrivateKey{}
	rsaKeys := [2]*rsa.PrivateKey{}
	for i := range 2 {
		var err1, err2 error
		ecdsaKeys[i], err1 = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		rsaKeys[i], err2 = rsa.GenerateKey(rand.Reader, 2048)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
	}
	forgedECDSA, forgedRSA := *ecdsaKeys[0], *rsaKeys[0]
	forgedECDSA.PublicKey = ecdsaKeys[1].PublicKey
	forgedRSA.PublicKey = rsaKeys[1].PublicKey
	for name, key := range map[string]crypto.PrivateKey{
		"ed25519": ed25519.PrivateKey(forgedEd25519), "ecdsa": &forgedECDSA, "rsa": &forgedRSA,
	} {
		for _, passphrase := range []string{"", "passphrase"} {
			var block *pem.Block
			var err error
			if passphrase == "" {
				block, err = ssh.MarshalPrivateKey(key, "")
			} else {
				block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if parsed, err := sshkey.Parse(pem.EncodeToMemory(block), passphrase); err == nil {
				t.Errorf("%s, passphrase %q: accepted as %s", name, passphrase, parsed.Signer().PublicKey().Type())
			}
		}
	}
}

// One signature with a key that fits into a Secret would take days, and Parse makes one.
func TestLargeKeysAreRefused(t *testing.T) {
	if _, err := sshkey.Parse(largekey.File(t), ""); err == nil || !strings.Contains(err.Error(), "16640 bits") {
		t.Errorf("got %v", err)
	}
	if _, err := sshkey.Parse(bytes.Repeat([]byte("-"), 1<<20), ""); err == nil ||
		!strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("got %v", err)
	}
}
