// Package sshsig creates and verifies signatures by SSH keys, as OpenSSH's PROTOCOL.sshsig defines them. Signatures are
// verified against a set of trusted keys. The package has no access to the network or to the Kubernetes API.
//
// The library hiddeco/sshsig implements the format. This package adds the policy: which keys are trusted, for what and
// until when, and bounds of size and strength. See docs/design/ssh-signatures.md.
package sshsig

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

const (
	armorStart = "-----BEGIN " + sshsig.PEMType + "-----\n"
	armorEnd   = "-----END " + sshsig.PEMType + "-----"
	// maxSignature is the maximum size, in bytes, of an armored signature.
	maxSignature = 64 << 10
	// minRSA is the minimum size, in bits, of an RSA key.
	minRSA = 2048
)

// Keys are the keys that are trusted to sign. They are safe for concurrent use.
type Keys struct{ keys []trustedKey }

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.keys) }

// Verify checks an armored signature over a message for a namespace ("git" for commits and tags). It returns the
// fingerprint of the trusted key that made it, as ssh-keygen -l shows it. The key must be valid now: an SSH signature
// does not contain the time when it was made.
func (k *Keys) Verify(message, armored []byte, namespace string, now time.Time) (fingerprint string, err error) {
	s, err := parse(armored)
	if err != nil {
		return "", err
	}
	if s.Namespace != namespace {
		return "", fmt.Errorf("the SSH signature is for namespace %q, not for %q", s.Namespace, namespace)
	}
	if err := k.checkTrust(s.PublicKey, namespace, now); err != nil {
		return "", err
	}
	if err := sshsig.Verify(bytes.NewReader(message), s, s.PublicKey, s.HashAlgorithm, namespace); err != nil {
		return "", errors.New("the SSH signature does not match the content")
	}
	return ssh.FingerprintSHA256(s.PublicKey), nil
}

// parse reads an armored signature. The library rejects unknown versions and hashes, and RSA signatures over SHA-1.
func parse(armored []byte) (*sshsig.Signature, error) {
	if len(armored) > maxSignature {
		return nil, fmt.Errorf("the SSH signature is larger than %d KiB", maxSignature>>10)
	}
	armored = bytes.TrimSpace(armored)
	// PEM decoding accepts text before and after the block
	if !bytes.HasPrefix(armored, []byte(armorStart)) || !bytes.HasSuffix(armored, []byte(armorEnd)) ||
		bytes.Count(armored, []byte("-----")) != 4 {
		return nil, errors.New("the armor of the SSH signature is malformed")
	}
	s, err := sshsig.Unarmor(armored)
	if err != nil {
		return nil, fmt.Errorf("the SSH signature is malformed: %w", err)
	}
	return s, nil
}

// checkTrust returns nil if any of the lines allows the key to sign for the namespace now, otherwise why the last one
// does not.
func (k *Keys) checkTrust(key ssh.PublicKey, namespace string, now time.Time) error {
	err := errors.New("the key that signed is not trusted")
	for i := range k.keys {
		t := &k.keys[i]
		if !bytes.Equal(t.key.Marshal(), key.Marshal()) {
			continue
		}
		if err = t.check(namespace, now); err == nil {
			return nil
		}
	}
	return err
}

// Sign returns an armored signature over a message for a namespace. Keys that Read rejects cannot sign.
func Sign(key ssh.Signer, message []byte, namespace string) ([]byte, error) {
	if err := checkStrength(key.PublicKey()); err != nil {
		return nil, err
	}
	s, err := sshsig.Sign(bytes.NewReader(message), key, sshsig.HashSHA512, namespace)
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(s), nil
}

// checkStrength returns an error for keys that can be broken.
func checkStrength(key ssh.PublicKey) error {
	if key.Type() == ssh.InsecureKeyAlgoDSA { //nolint:staticcheck // named to reject it
		return errors.New("a DSA key is too weak")
	}
	if c, ok := key.(ssh.CryptoPublicKey); ok {
		if r, ok := c.CryptoPublicKey().(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
			return fmt.Errorf("an RSA key of %d bits is too weak", r.N.BitLen())
		}
	}
	return nil
}
