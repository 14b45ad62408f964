// Package openpgp makes detached OpenPGP signatures (RFC 9580), and verifies them by a set of trusted keys.
// It reads no cluster, opens no connection, and asks no key server: what is trusted is what it was given.
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
	// maxKeyring bounds, in bytes, one file of public keys.
	maxKeyring = 4 << 20
	// maxSignature bounds, in bytes, an armored signature.
	maxSignature = 64 << 10
	signatureEnd = "-----END PGP SIGNATURE-----"
)

// Keyring is a set of trusted public keys. It is safe for concurrent use.
type Keyring struct{ keys openpgp.EntityList }

// Read returns the keys of files, each armored, with any number of blocks, or binary. A file without a public
// key that can be read is an error: whoever trusts it should know.
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

// Len returns how many keys there are.
func (k *Keyring) Len() int { return len(k.keys) }

func readFile(file []byte) (openpgp.EntityList, error) {
	if len(file) > maxKeyring {
		return nil, fmt.Errorf("the public keys take more than %d MiB", maxKeyring>>20)
	}
	if len(file) > 0 && file[0]&0x80 != 0 { // the first bit of every binary packet is set (RFC 9580, 4.2)
		return publicOnly(openpgp.ReadKeyRing(bytes.NewReader(file)))
	}
	var all openpgp.EntityList
	for r := bufio.NewReader(bytes.NewReader(file)); ; {
		block, err := armor.Decode(r) // reads no further than its block
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		if err != nil || block.Type != openpgp.PublicKeyType {
			return nil, errors.New("there is no OpenPGP public key")
		}
		keys, err := publicOnly(openpgp.ReadKeyRing(block.Body))
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, block.Body); err != nil {
			return nil, fmt.Errorf("the armor of a public key is damaged: %w", err)
		}
		all = append(all, keys...)
	}
}

// publicOnly refuses private keys: they have no business where only trust is kept.
func publicOnly(keys openpgp.EntityList, err error) (openpgp.EntityList, error) {
	if err != nil {
		return nil, fmt.Errorf("an OpenPGP public key cannot be read: %w", err)
	}
	for _, k := range keys {
		if k.PrivateKey != nil {
			return nil, errors.New("there is an OpenPGP private key: give the public one")
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no OpenPGP public key")
	}
	return keys, nil
}

// Verify checks an armored signature over a message, and returns the fingerprint of the trusted key that made it, in
// hexadecimal digits. Keys must be neither expired nor revoked now: when a signature claims to be made is the
// signer's word only.
func (k *Keyring) Verify(message, signature []byte, now time.Time) (fingerprint string, err error) {
	if len(signature) > maxSignature {
		return "", fmt.Errorf("the signature takes more than %d KiB", maxSignature>>10)
	}
	if n := bytes.Count(signature, []byte(signatureEnd)); n != 1 {
		return "", fmt.Errorf("there are %d OpenPGP signatures, not one", n)
	}
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil || block.Type != openpgp.SignatureType {
		return "", errors.New("the armor of the OpenPGP signature is damaged")
	}
	defer func() {
		if recover() != nil { // the library panics at some signatures that nobody made in earnest
			fingerprint, err = "", errors.New("the OpenPGP signature cannot be read")
		}
	}()
	config := &packet.Config{Time: func() time.Time { return now }}
	made, signer, err := openpgp.VerifyDetachedSignature(k.keys, bytes.NewReader(message), block.Body, config)
	if err != nil {
		return "", explain(err)
	}
	if config.RejectMessageHashAlgorithm(made.Hash) { // of which two contents can be made to have the same
		return "", fmt.Errorf("the signature is over a %s hash, which is too weak", made.Hash)
	}
	return fmt.Sprintf("%X", signer.PrimaryKey.Fingerprint), nil
}

// explain puts a failure into words that a reader can act upon.
func explain(err error) error {
	var invalid pgperrors.SignatureError
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return errors.New("the key that signed is not among the trusted ones")
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return errors.New("the key that signed is revoked")
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return errors.New("the key that signed has expired")
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return errors.New("the signature has expired")
	case errors.As(err, &invalid):
		return fmt.Errorf("the signature is not one of this content: %w", err)
	}
	return fmt.Errorf("the signature cannot be read: %w", err)
}
