// Package sshsig makes signatures by SSH keys (OpenSSH's PROTOCOL.sshsig), and verifies them by a set of
// trusted keys. It reads no cluster and opens no connection.
package sshsig

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	armorStart = "-----BEGIN SSH SIGNATURE-----"
	armorEnd   = "-----END SSH SIGNATURE-----"
	magic      = "SSHSIG"
	version    = 1
	// maxSignature bounds, in bytes, an armored signature.
	maxSignature = 64 << 10
	// minRSA is how many bits an RSA key must have.
	minRSA = 2048
)

// Signature is what an armored one holds.
type Signature struct {
	Key       ssh.PublicKey
	Namespace string // what the signature is for: "git" for commits and tags

	reserved, hash string
	signature      ssh.Signature
}

// blob is a signature on the wire, after the magic.
type blob struct {
	Version       uint32
	PublicKey     string
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Signature     string
}

// signed is what is signed, after the magic.
type signed struct {
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Hash          string
}

// parse reads an armored signature.
func parse(armored []byte) (*Signature, error) {
	if len(armored) > maxSignature {
		return nil, fmt.Errorf("the SSH signature takes more than %d KiB", maxSignature>>10)
	}
	body, ok := bytes.CutPrefix(bytes.TrimSpace(armored), []byte(armorStart))
	body, ended := bytes.CutSuffix(body, []byte(armorEnd))
	raw, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(body), nil)))
	if !ok || !ended || err != nil {
		return nil, errors.New("the armor of the SSH signature is damaged")
	}
	raw, ok = bytes.CutPrefix(raw, []byte(magic))
	var b blob
	if err := ssh.Unmarshal(raw, &b); !ok || err != nil {
		return nil, errors.New("the SSH signature is malformed")
	}
	if b.Version != version {
		return nil, fmt.Errorf("the SSH signature has the version %d, which is unknown", b.Version)
	}
	s := &Signature{Namespace: b.Namespace, reserved: b.Reserved, hash: b.HashAlgorithm}
	if s.Key, err = ssh.ParsePublicKey([]byte(b.PublicKey)); err != nil {
		return nil, errors.New("the SSH signature names no public key that is known")
	}
	if err := ssh.Unmarshal([]byte(b.Signature), &s.signature); err != nil {
		return nil, errors.New("the SSH signature is malformed")
	}
	return s, nil
}

// check tells whether the signature is one of the message, whoever's key it is.
func (s *Signature) check(message []byte) error {
	if s.Key.Type() == ssh.KeyAlgoRSA && !slices.Contains([]string{ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512},
		s.signature.Format) {
		return fmt.Errorf("the SSH signature is of the kind %q, which is too weak", s.signature.Format)
	}
	var sum []byte
	switch s.hash {
	case "sha256":
		h := sha256.Sum256(message)
		sum = h[:]
	case "sha512":
		h := sha512.Sum512(message)
		sum = h[:]
	default:
		return fmt.Errorf("the SSH signature is over the hash %q, which is unknown", s.hash)
	}
	content := append([]byte(magic), ssh.Marshal(signed{s.Namespace, s.reserved, s.hash, string(sum)})...)
	if s.Key.Verify(content, &s.signature) != nil {
		return errors.New("the SSH signature is not one of this content")
	}
	return nil
}

// Keys are the keys that are trusted to sign. They are safe for concurrent use.
type Keys struct{ keys []trusted }

// Len returns how many keys there are.
func (k *Keys) Len() int { return len(k.keys) }

// Verify checks an armored signature over a message made for a namespace, and returns the fingerprint of the
// trusted key that made it as ssh-keygen -l shows it. A key counts only while the lines that list it say so:
// when a signature was made it does not tell.
func (k *Keys) Verify(message, armored []byte, namespace string, now time.Time) (fingerprint string, err error) {
	s, err := parse(armored)
	if err != nil {
		return "", err
	}
	if s.Namespace != namespace {
		return "", fmt.Errorf("the SSH signature is for %q, not for %q", s.Namespace, namespace)
	}
	if err := k.trusts(s.Key, namespace, now); err != nil {
		return "", err
	}
	if err := s.check(message); err != nil {
		return "", err
	}
	return ssh.FingerprintSHA256(s.Key), nil
}

// trusts tells whether any of the lines lets the key sign for the namespace now; else why the last one does not.
func (k *Keys) trusts(key ssh.PublicKey, namespace string, now time.Time) error {
	err := errors.New("the key that signed is not among the trusted ones")
	for i := range k.keys {
		t := &k.keys[i]
		if !bytes.Equal(t.key.Marshal(), key.Marshal()) {
			continue
		}
		if err = t.allows(namespace, now); err == nil {
			return nil
		}
	}
	return err
}

// checkStrength refuses keys that can be broken.
func checkStrength(key ssh.PublicKey) error {
	if key.Type() == ssh.InsecureKeyAlgoDSA { //nolint:staticcheck // named in order to refuse it
		return errors.New("a DSA key is too weak")
	}
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if r, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
			return fmt.Errorf("an RSA key of %d bits is too weak", r.N.BitLen())
		}
	}
	return nil
}
