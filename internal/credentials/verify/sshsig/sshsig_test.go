package sshsig

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

var (
	now     = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	message = []byte("tree 1234\n")
)

// signatureCase is a case of TestVerifyAcceptsTrustedKeysOnly.
type signatureCase struct {
	allowed            string
	message, signature []byte
	wantErr            string
}

func signatureCases(t *testing.T, line string, good []byte, stranger ssh.Signer,
	trusted ssh.Signer) map[string]signatureCase {
	return map[string]signatureCase{
		"public key": {allowed: line, message: message, signature: good, wantErr: ""},
		"line of authorized_keys": {allowed: `restrict,command="git shell, only" ` + line, message: message,
			signature: good, wantErr: ""},
		"line of allowed_signers": {allowed: "# signers\n\n*@example.com,me " + line, message: message, signature: good,
			wantErr: ""},
		"namespace git": {allowed: `me namespaces="file,git" ` + line, message: message, signature: good,
			wantErr: ""},
		"any namespace": {allowed: `me namespaces="*" ` + line, message: message, signature: good,
			wantErr: ""},
		"within validity": {allowed: `me valid-after="20260101",valid-before="20260601120001Z" ` + line,
			message:   message,
			signature: good, wantErr: ""},
		"one of two lines allows it": {allowed: "me namespaces=\"file\" " + line + "me " + line, message: message,
			signature: good, wantErr: ""},
		"other namespaces": {allowed: `me namespaces="file" ` + line, message: message, signature: good,
			wantErr: `not trusted for namespace "git"`},
		"expired signer": {allowed: `me valid-before="20260601" ` + line, message: message, signature: good,
			wantErr: "invalid since 2026-06-01"},
		"expired authorized key": {allowed: `expiry-time="202606011200" ` + line, message: message, signature: good,
			wantErr: "invalid since"},
		"not yet valid": {allowed: `me valid-after="20260602" ` + line, message: message, signature: good,
			wantErr: "not valid before"},
		"untrusted key": {allowed: line, message: message, signature: sign(t, stranger, message, "git"),
			wantErr: "not trusted"},
		"other message": {allowed: line, message: []byte("tree 5678\n"), signature: good,
			wantErr: "does not match the content"},
		"signature for other use": {allowed: line, message: message, signature: sign(t, trusted, message, "file"),
			wantErr: `for namespace "file"`},
		"no signature": {allowed: line, message: message, wantErr: "armor"},
		"half a signature": {allowed: line, message: message, signature: append(good[:80:80], armorEnd...),
			wantErr: "malformed"},
		"text before signature": {allowed: line, message: message, signature: append([]byte("x\n"), good...),
			wantErr: "armor"},
		"text after signature": {allowed: line, message: message, signature: append(bytes.Clone(good), 'x'),
			wantErr: "armor"},
		"two signatures": {allowed: line, message: message, signature: append(bytes.Clone(good), good...),
			wantErr: "armor"},
		"short signature": {allowed: line, message: message,
			signature: []byte(armorStart + "U1NIU0lHAAAAAQ==\n" + armorEnd), wantErr: "malformed"},
		"too large": {allowed: line, message: message,
			signature: bytes.Repeat([]byte("a"), maxSignature+1), wantErr: "larger than"},
		"RSA signature over SHA-1": {allowed: line, message: message,
			signature: signWith(t, rsaKey(t, 2048), message, ssh.KeyAlgoRSA),
			wantErr:   "invalid signature format"},
	}
}

func TestVerifyAcceptsTrustedKeysOnly(t *testing.T) {
	trusted, stranger := newKey(t), newKey(t)
	line := string(ssh.MarshalAuthorizedKey(trusted.PublicKey()))
	good := sign(t, trusted, message, "git")
	for reason, c := range signatureCases(t, line, good, stranger, trusted) {
		t.Run(reason, func(t *testing.T) {
			keys, err := Read([]byte(c.allowed))
			if err != nil {
				t.Fatal(err)
			}
			signer, err := keys.Verify(c.message, c.signature, "git", now)
			if c.wantErr == "" && (err != nil || !strings.HasPrefix(signer, "SHA256:")) ||
				c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("got %q, %v; want %q", signer, err, c.wantErr)
			}
		})
	}
}

func TestVerifyKeyTypes(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for reason, c := range map[string]struct {
		key       crypto.Signer
		algorithm string
		wantErr   string
	}{
		"ECDSA":            {key: private, algorithm: ssh.KeyAlgoECDSA256, wantErr: ""},
		"RSA with SHA-256": {key: rsaKey(t, 2048), algorithm: ssh.KeyAlgoRSASHA256, wantErr: ""},
		"RSA with SHA-512": {key: rsaKey(t, 3072), algorithm: ssh.KeyAlgoRSASHA512, wantErr: ""},
		"RSA with SHA-1":   {key: rsaKey(t, 2048), algorithm: ssh.KeyAlgoRSA, wantErr: "invalid signature format"},
	} {
		t.Run(reason, func(t *testing.T) {
			public, err := ssh.NewPublicKey(c.key.Public())
			if err != nil {
				t.Fatal(err)
			}
			keys, err := Read(ssh.MarshalAuthorizedKey(public))
			if err != nil {
				t.Fatal(err)
			}
			_, err = keys.Verify(message, signWith(t, c.key, message, c.algorithm), "git", now)
			if (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
		})
	}
}

func TestReadRejects(t *testing.T) {
	signer := newKey(t)
	line := string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	weak, err := ssh.NewPublicKey(rsaKey(t, 1024).Public())
	if err != nil {
		t.Fatal(err)
	}
	certificate := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.UserCert}
	if err := certificate.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	for reason, file := range map[string]string{
		"empty": "", "comment": "# nothing", "text": "hello world", "authority": "* cert-authority " + line,
		"invalid time": `me valid-before="soon" ` + line,
		"weak key":     string(ssh.MarshalAuthorizedKey(weak)),
		"certificate":  string(ssh.MarshalAuthorizedKey(certificate)),
		"invalid line": line + "words\n", "other type": strings.Replace(line, "ssh-ed25519", "ssh-rsa", 1),
		"large": strings.Repeat("#", maxAllowed+1),
	} {
		if _, err := Read([]byte(file)); err == nil {
			t.Errorf("%s: no error", reason)
		}
	}
}

// The files are from OpenSSH 9.2: ssh-keygen -Y sign -n git.
func TestVerifySignatureOfOpenSSH(t *testing.T) {
	keys, err := Read(golden(t, "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Verify(golden(t, "message"), golden(t, "message.sig"), "git", now); err != nil {
		t.Error(err)
	}
}

func TestSignIsVerified(t *testing.T) {
	for name, key := range map[string]ssh.Signer{"ed25519": newKey(t), "RSA": signerOf(t, rsaKey(t, 2048))} {
		keys, err := Read(ssh.MarshalAuthorizedKey(key.PublicKey()))
		if err != nil {
			t.Fatal(err)
		}
		signature, err := Sign(key, message, "git")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Verify(message, signature, "git", now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Sign(signerOf(t, rsaKey(t, 1024)), message, "git"); err == nil {
		t.Error("a weak key signs")
	}
}

func FuzzVerify(f *testing.F) {
	key := newKey(f)
	keys, err := Read(ssh.MarshalAuthorizedKey(key.PublicKey()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sign(f, key, message, "git"))
	f.Add([]byte(armorStart + "U1NIU0lH" + armorEnd))
	f.Fuzz(func(t *testing.T, signature []byte) {
		if _, err := keys.Verify([]byte("another message"), signature, "git", now); err == nil {
			t.Error("a signature over another message is accepted")
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`me,*@x namespaces="git",valid-after="20260101" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk= comment`))
	f.Add([]byte("\"\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		keys, err := Read(file)
		if err == nil && keys.Len() == 0 {
			t.Error("no key and no error")
		}
	})
}

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func signerOf(tb testing.TB, key crypto.Signer) ssh.Signer {
	tb.Helper()
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		tb.Fatal(err)
	}
	return signer
}

func newKey(tb testing.TB) ssh.Signer {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		tb.Fatal(err)
	}
	return signer
}

func rsaKey(tb testing.TB, bits int) *rsa.PrivateKey {
	tb.Helper()
	tb.Setenv("GODEBUG", "rsa1024min=0") // to generate a weak key
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func signWith(tb testing.TB, key crypto.Signer, message []byte, algorithm string) []byte {
	tb.Helper()
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		tb.Fatal(err)
	}
	with, err := ssh.NewSignerWithAlgorithms(signer.(ssh.AlgorithmSigner), []string{algorithm})
	if err != nil {
		tb.Fatal(err)
	}
	return sign(tb, with, message, "git")
}

// sign returns an armored signature by the signer's own algorithm, without the checks of Sign.
func sign(tb testing.TB, signer ssh.Signer, message []byte, namespace string) []byte {
	tb.Helper()
	sum := sha512.Sum512(message)
	content := append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, HashAlgorithm, Hash string }{
		Namespace: namespace, Reserved: "", HashAlgorithm: "sha512", Hash: string(sum[:])})...)
	var signature *ssh.Signature
	var err error
	if a, ok := signer.(ssh.MultiAlgorithmSigner); ok {
		signature, err = a.SignWithAlgorithm(rand.Reader, content, a.Algorithms()[0])
	} else {
		signature, err = signer.Sign(rand.Reader, content)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return sshsig.Armor(&sshsig.Signature{Version: 1, PublicKey: signer.PublicKey(), Namespace: namespace,
		HashAlgorithm: sshsig.HashSHA512, Signature: signature})
}
