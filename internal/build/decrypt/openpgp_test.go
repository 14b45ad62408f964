package decrypt

import (
	"bytes"
	"io"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

const dataKey = "0123456789abcdef0123456789abcdef"

// pgpKeys returns keys with a new OpenPGP key.
func pgpKeys(tb testing.TB) (*Keys, *openpgp.Entity) {
	tb.Helper()
	key, err := openpgp.NewEntity("Test", "", "test@example.com", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &Keys{OpenPGP: openpgp.EntityList{key}}, key
}

// encryptPackets encrypts packets to a key.
func encryptPackets(tb testing.TB, key *openpgp.Entity, plain []byte) *bytes.Buffer {
	tb.Helper()
	to, _ := key.EncryptionKey(key.PrimaryKey.CreationTime)
	session := bytes.Repeat([]byte{7}, 32)
	var out bytes.Buffer
	if err := packet.SerializeEncryptedKey(&out, to.PublicKey, packet.CipherAES256, session, nil); err != nil {
		tb.Fatal(err)
	}
	w, err := packet.SerializeSymmetricallyEncrypted(&out, packet.CipherAES256, false, packet.CipherSuite{}, session,
		nil)
	if err != nil {
		tb.Fatal(err)
	}
	writeAll(tb, w, plain)
	return &out
}

// writeAll writes bytes and closes the writer.
func writeAll(tb testing.TB, w io.WriteCloser, b []byte) {
	tb.Helper()
	if _, err := w.Write(b); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
}

func TestMessagesAreDecrypted(t *testing.T) {
	keys, key := pgpKeys(t)
	for name, config := range map[string]*packet.Config{
		"plain":      {},
		"compressed": {DefaultCompressionAlgo: packet.CompressionZLIB},
		"AEAD":       {AEADConfig: &packet.AEADConfig{}},
	} {
		var message bytes.Buffer
		w, err := openpgp.Encrypt(&message, []*openpgp.Entity{key}, nil, nil, config)
		if err != nil {
			t.Fatal(err)
		}
		writeAll(t, w, []byte(dataKey))
		damaged := bytes.Clone(message.Bytes())
		damaged[len(damaged)-1] ^= 1
		if got, err := keys.decryptMessage(&message); err != nil || string(got) != dataKey {
			t.Errorf("%s: %q, error %v", name, got, err)
		}
		if _, err := keys.decryptMessage(bytes.NewReader(damaged)); err == nil {
			t.Errorf("%s: a message that was changed is accepted", name)
		}
	}
}

// TestSignatureInAMessageTakesNoMemory encrypts a signature of a few bytes that states 2 GiB. A message that is not for
// the keys is refused.
func TestSignatureInAMessageTakesNoMemory(t *testing.T) {
	keys, key := pgpKeys(t)
	plain := []byte{0xc2, 8, 6, 0, 22, 8, 0x7f, 0xff, 0xff, 0xff}
	plain = append(plain, 0xcb, byte(6+len(dataKey)), 'b', 0, 0, 0, 0, 0)
	plain = append(plain, dataKey...)
	message := encryptPackets(t, key, plain)
	other, _ := pgpKeys(t)
	if _, err := other.decryptMessage(bytes.NewReader(message.Bytes())); err == nil {
		t.Error("a message for another key is decrypted")
	}
	n := allocation.Bytes(func() {
		if got, err := keys.decryptMessage(message); err != nil || string(got) != dataKey {
			t.Errorf("%q, error %v", got, err)
		}
	})
	if n > 8<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}

func FuzzLiteral(f *testing.F) {
	f.Add(append([]byte{0xcb, byte(6 + len(dataKey)), 'b', 0, 0, 0, 0, 0}, dataKey...))
	f.Add([]byte{0xc2, 8, 6, 0, 22, 8, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, plain []byte) {
		if got, err := literal(plain, 1); err == nil && len(got) > maxDataKey {
			t.Errorf("a data key has %d bytes", len(got))
		}
	})
}
