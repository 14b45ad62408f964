package automate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// armored generates an OpenPGP key pair.
func armored(t *testing.T) (private, public string) {
	t.Helper()
	key, err := pgp.NewEntity("Robot", "", "robot@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	var out [2]bytes.Buffer
	for i, write := range []func(w *bytes.Buffer) error{
		func(b *bytes.Buffer) error { return key.SerializePrivate(b, nil) },
		func(b *bytes.Buffer) error { return key.Serialize(b) },
	} {
		var raw bytes.Buffer
		if err := write(&raw); err != nil {
			t.Fatal(err)
		}
		w, err := armor.Encode(&out[i], []string{pgp.PrivateKeyType, pgp.PublicKeyType}[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(raw.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out[0].String(), out[1].String()
}

// The source verifies commits, so an unsigned commit would not be fetched.
func TestSignedCommitsOverSSH(t *testing.T) {
	s := prepareHarness(t, system.ImageAutomation)
	dir := t.TempDir()
	private, public := sshkeys.New(t)
	if err := os.WriteFile(filepath.Join(dir, "authorized"), public, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Git = testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", filepath.Join(dir, "authorized"))
	hostKey, err := os.ReadFile(filepath.Join(dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	name, port, _ := strings.Cut(strings.TrimPrefix(s.Git.SSHURL, "ssh://git@"), ":")
	knownHosts := "[" + name + "]:" + port + " " + string(ssh.MarshalAuthorizedKey(host.PublicKey()))
	gpgPrivate, gpgPublic := armored(t)
	s.Start()
	s.Secret("login", map[string]string{"identity": string(private), "known_hosts": knownHosts})
	s.Secret("gpg-key", map[string]string{"git.asc": gpgPrivate})
	s.Secret("signers", map[string]string{"robot.pub": string(public), "robot.asc": gpgPublic})
	s.ChooseImage("web", "web:1")

	for _, kind := range []string{imagev1.SigningKeySSH, imagev1.SigningKeyGPG} {
		secret := map[string]string{imagev1.SigningKeySSH: "login", imagev1.SigningKeyGPG: "gpg-key"}[kind]
		s.Git.Commit(kind, map[string]string{"web.yaml": s.mark("web:1", "web")})
		s.GitRepository(kind, func(g *sourcev1.GitRepository) {
			g.Spec.URL, g.Spec.SecretRef = s.Git.SSHURL+"/"+kind, &meta.LocalObjectReference{Name: "login"}
			g.Spec.Verification = &sourcev1.GitRepositoryVerification{Mode: "head",
				SecretRef: meta.LocalObjectReference{Name: "signers"}}
		})
		s.NotReady(&sourcev1.GitRepository{}, kind, "InvalidCommitSignature", "not signed")
		s.ImageUpdateAutomation(kind, kind, func(a *imagev1.ImageUpdateAutomation) {
			a.Spec.GitSpec.Commit.SigningKey = &imagev1.SigningKey{Type: kind,
				SecretRef: meta.LocalObjectReference{Name: secret}}
		})
	}
	s.ChooseImage("web", "web:2")
	for _, kind := range []string{imagev1.SigningKeySSH, imagev1.SigningKeyGPG} {
		s.BranchHas(kind, "main", "web.yaml", s.mark("web:2", "web"))
		s.GitRepositoryReady(kind, s.Git.Run(kind, "rev-parse", "main"))
	}
}
