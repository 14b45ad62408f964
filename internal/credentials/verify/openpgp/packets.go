package openpgp

import (
	"bytes"
	"crypto/dsa" //nolint:staticcheck // to bound old keys
	"errors"
	"fmt"
	"io"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/elgamal"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/sluice-gitops/sluice/internal/limits/keysize"
)

const (
	tagSignature      = 2  // of a packet (RFC 9580, 5)
	embeddedSignature = 32 // type of a subpacket (RFC 9580, 5.2.3.34)
)

// Limits of keys. GnuPG creates keys for DSA of up to 3072 bits, and for ElGamal of up to 4096.
const (
	maxKey      = 8 << 10 // bytes of a packet; the private RSA key of keysize.MaxBits has 7 KiB
	maxDSABits  = 4096    // also for ElGamal
	maxDSAOrder = 512     // bits
)

var (
	errMalformed = errors.New("an OpenPGP packet is malformed")
	errLargeKey  = errors.New("an OpenPGP key is too large: use one of 4096 bits or less, or one of an elliptic curve")
)

// ReadKeys is [openpgp.ReadKeyRing] for input that is not trusted, whose size the caller bounds.
func ReadKeys(r io.Reader) (keys openpgp.EntityList, err error) {
	defer recoverMalformed(&err)
	checked, err := checkPackets(r)
	if err != nil {
		return nil, err
	}
	return openpgp.ReadKeyRing(checked)
}

// recoverMalformed sets an error if the library panics, as it does for some malformed signatures.
func recoverMalformed(err *error) {
	if recover() != nil {
		*err = errMalformed
	}
}

// readArmored is [ReadKeys] for one block in armor.
func readArmored(r io.Reader) (openpgp.EntityList, error) {
	block, err := armor.Decode(r)
	if err != nil {
		return nil, err
	}
	if block.Type != openpgp.PublicKeyType && block.Type != openpgp.PrivateKeyType {
		return nil, errMalformed
	}
	return ReadKeys(block.Body)
}

// checkPackets returns the packets of keys or signatures once it has checked them. The library allocates as many bytes
// as a signature states, up to 4 GiB with version 6, before it reads them (RFC 9580, 5.2.3). It also takes what follows
// in a packet for the next packet, which could hide such a signature.
func checkPackets(r io.Reader) (io.Reader, error) {
	var checked bytes.Buffer
	for packets := packet.NewOpaqueReader(r); ; {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return &checked, nil
		}
		if err != nil {
			return nil, errMalformed
		}
		var one bytes.Buffer
		if err := p.Serialize(&one); err != nil {
			return nil, errMalformed
		}
		checked.Write(one.Bytes())
		if err := checkPacket(p, &one); err != nil {
			return nil, err
		}
	}
}

// checkPacket returns an error for a packet that states a wrong length, or has more than its content. It reads the
// serialized form.
func checkPacket(p *packet.OpaquePacket, serialized *bytes.Buffer) error {
	if p.Tag == tagSignature {
		if err := checkSignature(p.Contents, 0); err != nil {
			return err
		}
	}
	parsed, _ := packet.Read(serialized) // a packet that it does not know is skipped later
	switch parsed := parsed.(type) {
	case *packet.PublicKey:
		if err := checkKey(parsed, len(p.Contents)); err != nil {
			return err
		}
	case *packet.PrivateKey:
		if err := checkKey(&parsed.PublicKey, len(p.Contents)); err != nil {
			return err
		}
	case *packet.Compressed, *packet.LiteralData, *packet.SymmetricallyEncrypted, *packet.AEADEncrypted:
		return fmt.Errorf("OpenPGP packet %d is not of a key or a signature", p.Tag)
	}
	if serialized.Len() > 0 {
		return errMalformed
	}
	return nil
}

// checkKey returns an error for a key whose operations take long. size is that of its packet in bytes, which bounds the
// numbers of a private key that may still be encrypted.
func checkKey(key *packet.PublicKey, size int) error {
	if size > maxKey {
		return errLargeKey
	}
	switch public := key.PublicKey.(type) {
	case *dsa.PublicKey:
		if public.P.BitLen() > maxDSABits || public.Q.BitLen() > maxDSAOrder {
			return errLargeKey
		}
	case *elgamal.PublicKey:
		if public.P.BitLen() > maxDSABits {
			return errLargeKey
		}
	}
	if keysize.Check(key.PublicKey) != nil {
		return errLargeKey
	}
	return nil
}

// checkSignature returns an error for a signature that states more bytes than it has, also in one that is embedded at
// a depth of at most one.
func checkSignature(b []byte, depth int) error {
	if len(b) == 0 || b[0] < 4 || b[0] > 6 {
		return nil // not supported, so that nothing else of it is read
	}
	if depth > 1 {
		return errMalformed
	}
	width := 2 // of a length
	if b[0] == 6 {
		width = 4
	}
	rest := b[min(4, len(b)):] // after the version, the type and two algorithms
	for range 2 {              // the hashed subpackets and the others
		if len(rest) < width {
			return errMalformed
		}
		var size uint64
		for _, digit := range rest[:width] {
			size = size<<8 | uint64(digit)
		}
		if rest = rest[width:]; size > uint64(len(rest)) {
			return errMalformed
		}
		subpackets, _ := packet.OpaqueSubpackets(rest[:size]) // those before a malformed one
		for _, s := range subpackets {
			if s.SubType&0x7f != embeddedSignature {
				continue
			}
			if err := checkSignature(s.Contents, depth+1); err != nil {
				return err
			}
		}
		rest = rest[size:]
	}
	return nil
}
