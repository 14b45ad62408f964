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
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

var (
	now     = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	message = []byte("tree 1234\n")
)

func TestSignaturesOfTrustedKeysOnly(t *testing.T) {
	trusted, stranger := newKey(t), newKey(t)
	line := string(ssh.MarshalAuthorizedKey(trusted.PublicKey()))
	good := sign(t, trusted, message, "git")
	for reason, c := range map[string]struct {
		allowed            string
		message, signature []byte
		says               string
	}{
		"a public key":             {line, message, good, ""},
		"a key of authorized_keys": {`restrict,command="git shell, only" ` + line, message, good, ""},
		"a signer":                 {"# signers\n\n*@example.com,me " + line, message, good, ""},
		"a signer for git":         {`me namespaces="file,git" ` + line, message, good, ""},
		"a signer for anything":    {`me namespaces="*" ` + line, message, good, ""},
		"a signer in time": {`me valid-after="20260101",valid-before="20260601120001Z" ` + line, message,
			good, ""},
		"one line of two is enough":   {"me namespaces=\"file\" " + line + "me " + line, message, good, ""},
		"a signer for something else": {`me namespaces="file" ` + line, message, good, `not trusted to sign for "git"`},
		"an expired signer": {`me valid-before="20260601" ` + line, message, good,
			"not valid since 2026-06-01"},
		"an expired authorized key": {`expiry-time="202606011200" ` + line, message, good, "not valid since"},
		"a signer of tomorrow":      {`me valid-after="20260602" ` + line, message, good, "not valid before"},
		"another key":               {line, message, sign(t, stranger, message, "git"), "not among the trusted"},
		"another message":           {line, []byte("tree 5678\n"), good, "not one of this content"},
		"another namespace":         {line, message, sign(t, trusted, message, "file"), `for "file"`},
		"no signature":              {line, message, nil, "armor"},
		"half a signature":          {line, message, append(good[:80:80], armorEnd...), "damaged"},
		"a short signature":         {line, message, []byte(armorStart + "U1NIU0lHAAAAAQ==" + armorEnd), "malformed"},
		"a signature of any size":   {line, message, bytes.Repeat([]byte("a"), maxSignature+1), "more than"},
		"an old RSA signature": {line, message, signWith(t, rsaKey(t, 2048), message, ssh.KeyAlgoRSA),
			"not among the trusted"},
	} {
		t.Run(reason, func(t *testing.T) {
			keys, err := Read([]byte(c.allowed))
			if err != nil {
				t.Fatal(err)
			}
			signer, err := keys.Verify(c.message, c.signature, "git", now)
			if c.says == "" && (err != nil || !strings.HasPrefix(signer, "SHA256:")) ||
				c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %q, %v; want %q", signer, err, c.says)
			}
		})
	}
}

func TestEveryKindOfKey(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for reason, c := range map[string]struct {
		key       crypto.Signer
		algorithm string
		says      string
	}{
		"ECDSA":            {private, ssh.KeyAlgoECDSA256, ""},
		"RSA with SHA-256": {rsaKey(t, 2048), ssh.KeyAlgoRSASHA256, ""},
		"RSA with SHA-512": {rsaKey(t, 3072), ssh.KeyAlgoRSASHA512, ""},
		"RSA with SHA-1":   {rsaKey(t, 2048), ssh.KeyAlgoRSA, "too weak"},
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
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestKeysThatCannotBeTrusted(t *testing.T) {
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
		"empty": "", "a comment": "# nothing", "words": "hello world", "an authority": "* cert-authority " + line,
		"a bad time":    `me valid-before="soon" ` + line,
		"a weak key":    string(ssh.MarshalAuthorizedKey(weak)),
		"a certificate": string(ssh.MarshalAuthorizedKey(certificate)),
		"one bad line":  line + "words\n", "another kind": strings.Replace(line, "ssh-ed25519", "ssh-rsa", 1),
		"large": strings.Repeat("#", maxAllowed+1),
	} {
		if _, err := Read([]byte(file)); err == nil {
			t.Errorf("%s: is taken for public keys", reason)
		}
	}
}

// The files were made by OpenSSH 9.2: ssh-keygen -Y sign -n git.
func TestSignatureOfOpenSSH(t *testing.T) {
	keys, err := Read(golden(t, "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Verify(golden(t, "message"), golden(t, "message.sig"), "git", now); err != nil {
		t.Error(err)
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
			t.Error("a signature over another message is taken")
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`me,*@x namespaces="git",valid-after="20260101" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk= comment`))
	f.Add([]byte("\"\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		keys, err := Read(file)
		if err == nil && keys.Len() == 0 {
			t.Error("no key is trusted, and nobody is told")
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
	tb.Setenv("GODEBUG", "rsa1024min=0") // a weak one must be made to be refused
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

// sign makes an armored signature as ssh-keygen -Y sign does.
func sign(tb testing.TB, signer ssh.Signer, message []byte, namespace string) []byte {
	tb.Helper()
	sum := sha512.Sum512(message)
	content := append([]byte(magic), ssh.Marshal(signed{namespace, "", "sha512", string(sum[:])})...)
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
	raw := append([]byte(magic), ssh.Marshal(blob{
		version, string(signer.PublicKey().Marshal()), namespace, "", "sha512", string(ssh.Marshal(signature)),
	})...)
	return []byte(armorStart + "\n" + base64.StdEncoding.EncodeToString(raw) + "\n" + armorEnd + "\n")
}
