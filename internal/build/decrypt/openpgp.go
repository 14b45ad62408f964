package decrypt

import (
	"bytes"
	"io"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Tags of packets (RFC 9580, 5).
const (
	tagSessionKey = 1
	tagCompressed = 8
	tagLiteral    = 11
	tagEncrypted  = 18 // and protected against changes
	tagAEAD       = 20
)

const (
	maxMessage  = 64 << 10 // bytes of a decrypted message with its packets
	maxAttempts = 64       // to decrypt a session key of a message
)

// decryptMessage decrypts an OpenPGP message for one of the keys. It parses only the packets that it needs: who
// encrypts a message may put anything into it, and the library allocates up to 4 GiB for a signature of a few bytes.
func (k *Keys) decryptMessage(r io.Reader) ([]byte, error) {
	var sessions []*packet.EncryptedKey
	attempts := maxAttempts
	for packets := packet.NewOpaqueReader(r); ; {
		p, err := packets.Next()
		if err != nil {
			return nil, errNotAtHand
		}
		switch p.Tag {
		case tagSessionKey:
			if s := k.sessionKey(p, &attempts); s != nil {
				sessions = append(sessions, s)
			}
		case tagEncrypted, tagAEAD:
			for _, s := range sessions {
				if plain, ok := decryptWith(p, s); ok {
					return literal(plain, 1)
				}
			}
			return nil, errNotAtHand
		}
	}
}

// sessionKey returns a session key that one of the keys decrypts, or nil. It counts down the attempts that are left.
func (k *Keys) sessionKey(p *packet.OpaquePacket, attempts *int) *packet.EncryptedKey {
	parsed, err := p.Parse()
	session, ok := parsed.(*packet.EncryptedKey)
	if err != nil || !ok {
		return nil
	}
	candidates := k.OpenPGP.KeysById(session.KeyId)
	if session.KeyId == 0 {
		candidates = k.OpenPGP.DecryptionKeys()
	}
	for _, c := range candidates {
		if c.PrivateKey == nil || c.PrivateKey.Encrypted {
			continue
		}
		if *attempts--; *attempts < 0 {
			return nil
		}
		if session.Decrypt(c.PrivateKey, nil) == nil {
			return session
		}
	}
	return nil
}

// decryptWith returns the packets of an encrypted message whose integrity was checked. It is false if the session key
// is that of another message.
func decryptWith(p *packet.OpaquePacket, session *packet.EncryptedKey) ([]byte, bool) {
	parsed, err := p.Parse()
	message, ok := parsed.(packet.EncryptedDataPacket)
	if err != nil || !ok {
		return nil, false
	}
	r, err := message.Decrypt(session.CipherFunc, session.Key)
	if err != nil {
		return nil, false
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxMessage+1))
	if err != nil || len(plain) > maxMessage || r.Close() != nil {
		return nil, false
	}
	return plain, true
}

// literal returns the content of a message, which may be compressed.
func literal(plain []byte, compressions int) ([]byte, error) {
	for packets := packet.NewOpaqueReader(bytes.NewReader(plain)); ; {
		p, err := packets.Next()
		if err != nil {
			return nil, errNotAtHand
		}
		if p.Tag != tagLiteral && p.Tag != tagCompressed {
			continue
		}
		parsed, err := p.Parse()
		if err != nil {
			return nil, errNotAtHand
		}
		switch parsed := parsed.(type) {
		case *packet.LiteralData:
			return readKey(parsed.Body)
		case *packet.Compressed:
			inner, err := io.ReadAll(io.LimitReader(parsed.Body, maxMessage))
			if err != nil || compressions == 0 {
				return nil, errNotAtHand
			}
			return literal(inner, compressions-1)
		}
	}
}
