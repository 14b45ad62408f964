package openpgp

import (
	"bytes"
	"errors"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// PrivateKey is a key for signing. It is safe for concurrent use.
type PrivateKey struct{ key *openpgp.Entity }

// ReadPrivate reads the only private key of an armored file, and decrypts it. Errors contain no part of the file or the
// passphrase.
func ReadPrivate(armored, passphrase []byte) (*PrivateKey, error) {
	if len(armored) > maxKeyring {
		return nil, errors.New("the OpenPGP key is too large")
	}
	keys, err := readArmored(bytes.NewReader(armored))
	switch {
	case err != nil:
		return nil, errors.New("the file contains no armored OpenPGP private key")
	case len(keys) != 1:
		return nil, errors.New("the file contains more than one OpenPGP key")
	case keys[0].PrivateKey == nil:
		return nil, errors.New("the file contains an OpenPGP public key: export the private key")
	}
	return unlock(keys[0], passphrase)
}

// unlock decrypts a private key.
func unlock(key *openpgp.Entity, passphrase []byte) (*PrivateKey, error) {
	if isEncrypted(key) {
		if len(passphrase) == 0 {
			return nil, errors.New("the OpenPGP key is encrypted, and no passphrase is set")
		}
		if err := checkCost(key); err != nil {
			return nil, err
		}
		if err := key.DecryptPrivateKeys(passphrase); err != nil {
			return nil, errors.New("the passphrase does not decrypt the OpenPGP key")
		}
	}
	return &PrivateKey{key}, nil
}

// isEncrypted reports whether any part of the key needs a passphrase. Parts that are missing, such as a
// primary key that is stored elsewhere, need none.
func isEncrypted(key *openpgp.Entity) bool {
	encrypted := func(k *packet.PrivateKey) bool { return k != nil && !k.Dummy() && k.Encrypted }
	if encrypted(key.PrivateKey) {
		return true
	}
	for _, sub := range key.Subkeys {
		if encrypted(sub.PrivateKey) {
			return true
		}
	}
	return false
}

// Sign returns an armored detached signature over a message. It returns an error if the key is expired or revoked now.
func (k *PrivateKey) Sign(message []byte, now time.Time) ([]byte, error) {
	config := &packet.Config{Time: func() time.Time { return now }}
	if _, ok := k.key.SigningKey(now); !ok {
		return nil, errors.New("the OpenPGP key cannot sign now: it is expired, revoked, or not for signing")
	}
	var b bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&b, k.key, bytes.NewReader(message), config); err != nil {
		return nil, errors.New("the OpenPGP key cannot sign")
	}
	return append(b.Bytes(), '\n'), nil
}
