package openpgp

import (
	"bytes"
	"errors"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const (
	maxSubkeys = 32  // that a passphrase is tried for
	argon2Mode = 4   // way to make a key of a passphrase (RFC 9580, 3.7.1)
	aeadUsage  = 253 // how a private key is encrypted (RFC 9580, 3.7.2.1)
	// maxArgon2 is the maximum of the memory, in KiB, times the passes: 64 MiB and three passes are common.
	maxArgon2 = 1 << 18
)

var errCost = errors.New("the passphrase of the OpenPGP key would need too much memory or time: export it with " +
	"another protection, for example with gpg --export-secret-keys")

// checkCost returns an error if the passphrase of a key costs too much memory or time. The file of the key says how
// much it costs: up to 2 TiB.
func checkCost(key *openpgp.Entity) error {
	if len(key.Subkeys) > maxSubkeys {
		return errCost
	}
	for _, k := range append([]openpgp.Subkey{{PrivateKey: key.PrivateKey}}, key.Subkeys...) {
		if k.PrivateKey == nil || k.PrivateKey.Dummy() || !k.PrivateKey.Encrypted {
			continue
		}
		protection, err := protectionOf(k.PrivateKey)
		if err != nil || isExpensive(k.PrivateKey.Version, protection) {
			return errCost
		}
	}
	return nil
}

// protectionOf returns what follows the public part in the packet of a private key (RFC 9580, 5.5.3).
func protectionOf(key *packet.PrivateKey) ([]byte, error) {
	var private, public bytes.Buffer
	if err := key.Serialize(&private); err != nil {
		return nil, err
	}
	if err := key.PublicKey.Serialize(&public); err != nil {
		return nil, err
	}
	all, err := packet.NewOpaqueReader(&private).Next()
	if err != nil {
		return nil, err
	}
	part, err := packet.NewOpaqueReader(&public).Next()
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(all.Contents, part.Contents)
	if !ok {
		return nil, errMalformed
	}
	return rest, nil
}

// isExpensive reports whether the protection of a key of a version is Argon2 with too much memory or too many passes.
func isExpensive(version int, protection []byte) bool {
	at := 2 // usage, cipher
	if len(protection) > 0 && protection[0] == aeadUsage {
		at++ // mode
	}
	if version == 6 {
		at += 2 // lengths
	}
	if len(protection) <= at || protection[at] != argon2Mode {
		return false
	}
	argon2 := protection[at+1:] // salt, passes, lanes, memory
	if len(argon2) < 19 || argon2[18] > 30 {
		return true
	}
	return uint64(argon2[16])<<argon2[18] > maxArgon2
}
