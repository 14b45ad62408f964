package git

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestCommitIsSigned(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind string
		key  signingKey
	}{
		"Ed25519":                     {kind: SigningSSH, key: sshSigningKey(t, ed25519Key(t), "")},
		"ECDSA":                       {kind: SigningSSH, key: sshSigningKey(t, ec, "")},
		"RSA with passphrase":         {kind: SigningSSH, key: sshSigningKey(t, r, "open sesame")},
		"OpenPGP":                     {kind: "", key: pgpSigningKey(t, packet.PubKeyAlgoEdDSA, "")},
		"OpenPGP RSA with passphrase": {kind: "gpg", key: pgpSigningKey(t, packet.PubKeyAlgoRSA, "open sesame")},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.NewGit(t)
			g.Commit("app", map[string]string{"a.yaml": "1"})
			v := open(t)
			rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
			sign, err := ReadSigningKey(c.kind, c.key.secret, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			commit, err := v.Commit(t.Context(), NewCommit{
				Parent: plumbing.NewHash(rev.Commit), Edits: []Edit{{Path: "a.yaml", Content: []byte("2")}},
				Author:  author,
				Message: "Sign\n\nit", Sign: sign,
			})
			if err != nil {
				t.Fatal(err)
			}
			trusted, err := ReadTrusted(map[string][]byte{"key": c.key.public})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.VerifyCommit(Revision{Commit: commit.String()}, trusted, time.Now()); err != nil {
				t.Error(err)
			}
			if err := v.Push(t.Context(), []RefUpdate{to(mainRef, rev, commit)}, nil); err != nil {
				t.Fatal(err)
			}
			g.Run("app", "fsck", "--strict")
			verifyWithGit(t, g, "app", commit.String(), c.key.public)
		})
	}
}

func TestReadSigningKeyFailures(t *testing.T) {
	locked := pgpSigningKey(t, packet.PubKeyAlgoEdDSA, "open sesame")
	sshLocked := sshSigningKey(t, ed25519Key(t), "open sesame")
	for name, c := range map[string]struct {
		kind    string
		data    map[string][]byte
		wantErr string
	}{
		"no data": {wantErr: "'git.asc' of the Secret cannot be used: the file contains no armored OpenPGP " +
			"private key. Set git.asc to the output of gpg --export-secret-keys --armor KEY, and passphrase to " +
			"its passphrase, if it has one"},
		"other text": {data: map[string][]byte{"git.asc": []byte("hunter2")}, wantErr: "contains no armored"},
		"public key": {data: map[string][]byte{"git.asc": locked.public}, wantErr: "OpenPGP public key"},
		"no passphrase": {data: map[string][]byte{"git.asc": locked.secret["git.asc"]},
			wantErr: "no passphrase is set"},
		"wrong passphrase": {data: map[string][]byte{"git.asc": locked.secret["git.asc"],
			"passphrase": []byte("hunter2")}, wantErr: "does not decrypt"},
		"no SSH key": {kind: SigningSSH, wantErr: "cannot be parsed: not a private key: ssh: no key found. It " +
			"must be in PEM; set the key 'password' to its passphrase, if it has one"},
		"no SSH passphrase": {kind: SigningSSH, data: map[string][]byte{"identity": sshLocked.secret["identity"]},
			wantErr: "cannot be parsed"},
		"wrong SSH passphrase": {kind: SigningSSH,
			data:    map[string][]byte{"identity": sshLocked.secret["identity"], "password": []byte("hunter2")},
			wantErr: "cannot be parsed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSigningKey(c.kind, c.data, time.Now)
			if fault.As(err) == nil || !strings.Contains(err.Error(), c.wantErr) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
		})
	}
	expired, err := ReadSigningKey("", pgpSigningKey(t, packet.PubKeyAlgoEdDSA, "").secret,
		func() time.Time { return time.Now().AddDate(2, 0, 0) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := expired([]byte("tree")); err == nil || !strings.Contains(err.Error(),
		"expired, revoked, or not for signing. Replace the key in the Secret of spec.git.commit.signingKey") {
		t.Errorf("an expired key: got %v", err)
	}
}

// verifyWithGit verifies a signature with git, if the program that git needs for it is installed.
func verifyWithGit(t *testing.T, g *testenv.Git, repo, commit string, public []byte) {
	t.Helper()
	program := "ssh-keygen"
	if bytes.HasPrefix(public, []byte("-----")) {
		program = "gpg"
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Logf("not verified with git: %v", err)
		return
	}
	home, err := os.MkdirTemp("", "gpg") // a short path: GnuPG creates a socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // it may not be running
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("GNUPGHOME", home)
	signers := filepath.Join(home, "signers")
	if program == "gpg" {
		cmd := exec.Command("gpg", "--batch", "--quiet", "--import")
		cmd.Stdin = bytes.NewReader(public)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gpg: %v\n%s", err, out)
		}
	}
	write(t, signers, append([]byte("sluice@example.com "), public...))
	g.Run(repo, "-c", "gpg.ssh.allowedSignersFile="+signers, "verify-commit", commit)
}

func ed25519Key(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signingKey is the data of a Secret with a signing key, and its public key.
type signingKey struct {
	secret map[string][]byte
	public []byte
}

func sshSigningKey(t *testing.T, key crypto.Signer, password string) signingKey {
	t.Helper()
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if password != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(password))
	}
	if err != nil {
		t.Fatal(err)
	}
	secret := map[string][]byte{"identity": pem.EncodeToMemory(block), "password": []byte(password)}
	return signingKey{secret, ssh.MarshalAuthorizedKey(public)}
}

// pgpSigningKey returns a key that expires in a year.
func pgpSigningKey(t *testing.T, algorithm packet.PublicKeyAlgorithm, passphrase string) signingKey {
	t.Helper()
	config := &packet.Config{Algorithm: algorithm, KeyLifetimeSecs: 365 * 24 * 3600}
	key, err := openpgp.NewEntity("Sluice", "", "sluice@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	armored := func(kind string, serialize func(w *bytes.Buffer) error) []byte {
		var raw, b bytes.Buffer
		if err := serialize(&raw); err != nil {
			t.Fatal(err)
		}
		w, err := armor.Encode(&b, kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(raw.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return append(b.Bytes(), '\n')
	}
	public := armored(openpgp.PublicKeyType, func(w *bytes.Buffer) error { return key.Serialize(w) })
	if passphrase != "" {
		if err := key.EncryptPrivateKeys([]byte(passphrase), nil); err != nil {
			t.Fatal(err)
		}
	}
	private := armored(openpgp.PrivateKeyType,
		func(w *bytes.Buffer) error { return key.SerializePrivateWithoutSigning(w, nil) })
	return signingKey{map[string][]byte{"git.asc": private, "passphrase": []byte(passphrase + "\n")}, public}
}
