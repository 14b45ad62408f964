// Package seal authenticates status fields that decide about security. Accounts other than the controllers' may be
// able to write a status, but they do not have the key.
package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Size is the length of a key in bytes.
const Size = 32

// Key makes and verifies seals. A nil key seals nothing, and no seal is valid for it.
type Key struct{ secret []byte }

// New returns a key with a secret of [Size] random bytes.
func New(secret []byte) *Key { return &Key{secret} }

// Seal returns a message authentication code of the parts.
func (k *Key) Seal(parts ...string) string {
	if k == nil {
		return ""
	}
	return hex.EncodeToString(k.sum(parts))
}

// Verify reports whether a seal is that of the parts.
func (k *Key) Verify(seal string, parts ...string) bool {
	if k == nil {
		return false
	}
	sum, err := hex.DecodeString(seal)
	return err == nil && hmac.Equal(sum, k.sum(parts))
}

func (k *Key) sum(parts []string) []byte {
	h := hmac.New(sha256.New, k.secret)
	for _, p := range parts {
		var length [8]byte // so that no two lists of parts have the same bytes
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}
