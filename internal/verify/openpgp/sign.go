package openpgp

import (
	"bytes"
	"errors"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// PrivateKey is a key that signs. It is safe for concurrent use.
type PrivateKey struct{ key *openpgp.Entity }

// ReadPrivate reads the one private key of an armored file, and unlocks it. No error holds a part of the file
// or the passphrase.
func ReadPrivate(armored, passphrase []byte) (*PrivateKey, error) {
	if len(armored) > maxKeyring {
		return nil, errors.New("the OpenPGP key is too large")
	}
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(armored))
	switch {
	case err != nil:
		return nil, errors.New("there is no armored OpenPGP private key")
	case len(keys) != 1:
		return nil, errors.New("there is more than one OpenPGP key")
	case keys[0].PrivateKey == nil:
		return nil, errors.New("the OpenPGP key is a public one: export the private key")
	}
	key := keys[0]
	if isLocked(key) {
		if len(passphrase) == 0 {
			return nil, errors.New("the OpenPGP key is locked, and there is no passphrase")
		}
		if err := key.DecryptPrivateKeys(passphrase); err != nil {
			return nil, errors.New("the passphrase does not unlock the OpenPGP key")
		}
	}
	return &PrivateKey{key}, nil
}

// isLocked tells whether any part of the key needs a passphrase. A part that is not there at all, as the
// primary key of those who keep it elsewhere, needs none.
func isLocked(key *openpgp.Entity) bool {
	locked := func(k *packet.PrivateKey) bool { return k != nil && !k.Dummy() && k.Encrypted }
	if locked(key.PrivateKey) {
		return true
	}
	for _, sub := range key.Subkeys {
		if locked(sub.PrivateKey) {
			return true
		}
	}
	return false
}

// Sign returns an armored detached signature over a message. A key that is expired or revoked now does not sign.
func (k *PrivateKey) Sign(message []byte, now time.Time) ([]byte, error) {
	config := &packet.Config{Time: func() time.Time { return now }}
	if _, ok := k.key.SigningKey(now); !ok {
		return nil, errors.New("the OpenPGP key may not sign now: it is expired, revoked or for something else")
	}
	var b bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&b, k.key, bytes.NewReader(message), config); err != nil {
		return nil, errors.New("the OpenPGP key cannot sign")
	}
	return append(b.Bytes(), '\n'), nil
}
