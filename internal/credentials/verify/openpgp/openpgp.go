// Package openpgp creates detached OpenPGP signatures (RFC 9580), and verifies them against a set of trusted keys. It
// has no access to the network, key servers included, or to the Kubernetes API.
package openpgp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const (
	// maxKeyring is the maximum size, in bytes, of a file of keys.
	maxKeyring = 4 << 20
	// maxSignature is the maximum size, in bytes, of an armored signature.
	maxSignature = 64 << 10
	signatureEnd = "-----END PGP SIGNATURE-----"
)

// Keyring is a set of trusted public keys. It is safe for concurrent use.
type Keyring struct{ keys openpgp.EntityList }

// Read returns the public keys of files. A file is binary, or armored with any number of blocks. Read returns an error
// for a file without a valid public key, and for one with a private key.
func Read(files ...[]byte) (*Keyring, error) {
	k := &Keyring{}
	for _, file := range files {
		keys, err := readFile(file)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, keys...)
	}
	return k, nil
}

// Len returns the number of keys.
func (k *Keyring) Len() int { return len(k.keys) }

func readFile(file []byte) (openpgp.EntityList, error) {
	if len(file) > maxKeyring {
		return nil, fmt.Errorf("the file of public keys is larger than %d MiB", maxKeyring>>20)
	}
	if len(file) > 0 && file[0]&0x80 != 0 { // binary: the first bit of a packet is set (RFC 9580, 4.2)
		return publicOnly(ReadKeys(bytes.NewReader(file)))
	}
	var all openpgp.EntityList
	for r := bufio.NewReader(bytes.NewReader(file)); ; {
		block, err := armor.Decode(r) // does not read beyond its block
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		if err != nil || block.Type != openpgp.PublicKeyType {
			return nil, errors.New("the file contains no OpenPGP public key")
		}
		keys, err := publicOnly(ReadKeys(block.Body))
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, block.Body); err != nil {
			return nil, fmt.Errorf("the armor of a public key is malformed: %w", err)
		}
		all = append(all, keys...)
	}
}

// publicOnly returns an error if there is a private key: a file of trusted keys must not contain one.
func publicOnly(keys openpgp.EntityList, err error) (openpgp.EntityList, error) {
	if err != nil {
		return nil, fmt.Errorf("cannot parse an OpenPGP public key: %w", err)
	}
	for _, k := range keys {
		if k.PrivateKey != nil {
			return nil, errors.New("the file contains an OpenPGP private key: use the public key")
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the file contains no OpenPGP public key")
	}
	return keys, nil
}

// Verify checks an armored signature over a message, and returns the fingerprint of the trusted key that made it, in
// hexadecimal digits. The key must not be expired or revoked now: the time in a signature is not reliable, since the
// signer sets it.
func (k *Keyring) Verify(message, signature []byte, now time.Time) (fingerprint string, err error) {
	if len(signature) > maxSignature {
		return "", fmt.Errorf("the signature is larger than %d KiB", maxSignature>>10)
	}
	if n := bytes.Count(signature, []byte(signatureEnd)); n != 1 {
		return "", fmt.Errorf("%d OpenPGP signatures found, want exactly one", n)
	}
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil || block.Type != openpgp.SignatureType {
		return "", errors.New("the armor of the OpenPGP signature is malformed")
	}
	defer recoverMalformed(&err)
	packets, err := checkPackets(block.Body)
	if err != nil {
		return "", explain(err)
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	made, signer, err := openpgp.VerifyDetachedSignature(k.keys, bytes.NewReader(message), packets, config)
	if err != nil {
		return "", explain(err)
	}
	if config.RejectMessageHashAlgorithm(made.Hash) { // collisions can be found
		return "", fmt.Errorf("the signature uses the hash %s, which is too weak", made.Hash)
	}
	return fmt.Sprintf("%X", signer.PrimaryKey.Fingerprint), nil
}

// explain returns an error with a message for users.
func explain(err error) error {
	var invalid pgperrors.SignatureError
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return errors.New("the key that signed is not trusted")
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return errors.New("the key that signed is revoked")
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return errors.New("the key that signed has expired")
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return errors.New("the signature has expired")
	case errors.As(err, &invalid):
		return fmt.Errorf("the signature does not match the content: %w", err)
	}
	return fmt.Errorf("the signature is malformed: %w", err)
}
