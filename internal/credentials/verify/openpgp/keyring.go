package openpgp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// ReadKeyRing reads a private key from a keyring, armored or binary, and decrypts it. id is the end of the fingerprint
// of the key or of one of its subkeys, in hexadecimal; it may be empty if the keyring has one private key. Errors
// contain no part of the file or the passphrase.
func ReadKeyRing(file []byte, id string, passphrase []byte) (*PrivateKey, error) {
	if len(file) > maxKeyring {
		return nil, errors.New("the OpenPGP keyring is too large")
	}
	read := ReadKeys
	if bytes.HasPrefix(bytes.TrimSpace(file), []byte("-----BEGIN")) {
		read = readArmored
	}
	keys, err := read(bytes.NewReader(file))
	if err != nil {
		return nil, errors.New("the file is not an OpenPGP keyring")
	}
	keys = slices.DeleteFunc(keys, func(k *openpgp.Entity) bool { return k.PrivateKey == nil })
	if len(keys) == 0 {
		return nil, errors.New("the keyring contains no private key")
	}
	id = strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(id, "0x"), " ", ""))
	if id != "" {
		keys = slices.DeleteFunc(keys, func(k *openpgp.Entity) bool { return !hasID(k, id) })
	}
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("the keyring contains no private key '%s'", id)
	case len(keys) > 1:
		return nil, errors.New("the keyring contains more than one private key: choose one by its ID")
	}
	return unlock(keys[0], passphrase)
}

// hasID reports whether the fingerprint of a key or of one of its subkeys ends with an ID.
func hasID(key *openpgp.Entity, id string) bool {
	matches := func(fingerprint []byte) bool {
		return strings.HasSuffix(fmt.Sprintf("%X", fingerprint), id)
	}
	return matches(key.PrimaryKey.Fingerprint) ||
		slices.ContainsFunc(key.Subkeys, func(s openpgp.Subkey) bool { return matches(s.PublicKey.Fingerprint) })
}
