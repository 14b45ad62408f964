package openpgp

import (
	"bytes"
	"crypto/dsa" //nolint:staticcheck // old keys are bounded
	"errors"
	"io"
	"math/big"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/elgamal"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ProtonMail/go-crypto/openpgp/s2k"

	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
)

var (
	made    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	message = []byte("tree 1234\n")
)

func TestVerifyAcceptsTrustedKeysOnly(t *testing.T) {
	now := made.Add(time.Hour)
	trusted, stranger := newKey(t, nil), newKey(t, nil)
	expired := newKey(t, &packet.Config{KeyLifetimeSecs: 60})
	shortLived := newKey(t, nil)
	revoked := newKey(t, nil)
	if err := revoked.RevokeKey(packet.KeyCompromised, "stolen", at(made)); err != nil {
		t.Fatal(err)
	}
	keys, err := Read(public(t, trusted), append(public(t, expired), public(t, revoked)...), public(t, shortLived))
	if err != nil {
		t.Fatal(err)
	}
	if keys.Len() != 4 {
		t.Fatalf("got %d keys, want 4", keys.Len())
	}
	ofTrusted := sign(t, trusted, message, nil)
	for reason, c := range map[string]struct {
		message, signature []byte
		wantErr            string
	}{
		"trusted key":   {message: message, signature: ofTrusted, wantErr: ""},
		"other message": {message: []byte("tree 5678\n"), signature: ofTrusted, wantErr: "does not match the content"},
		"untrusted key": {message: message, signature: sign(t, stranger, message, nil), wantErr: "not trusted"},
		"expired key": {message: message, signature: sign(t, expired, message, nil),
			wantErr: "key that signed has expired"},
		"revoked key": {message: message, signature: sign(t, revoked, message, nil), wantErr: "revoked"},
		"expired signature": {message: message,
			signature: sign(t, shortLived, message, &packet.Config{SigLifetimeSecs: 60}),
			wantErr:   "signature has expired"},
		"no signature": {message: message, wantErr: "0 OpenPGP signatures"},
		"two signatures": {message: message, signature: append(bytes.Clone(ofTrusted), ofTrusted...),
			wantErr: "2 OpenPGP signatures"},
		"half a signature": {message: message,
			signature: append(ofTrusted[:len(ofTrusted)/2:len(ofTrusted)/2], signatureEnd...),
			wantErr:   "malformed"},
		"key instead of signature": {message: message, signature: append(public(t, trusted), signatureEnd...),
			wantErr: "malformed"},
		"too large": {message: message, signature: bytes.Repeat([]byte("a"), maxSignature+1),
			wantErr: "larger than"},
		"text after the signature": {message: message, signature: append(bytes.Clone(ofTrusted), "tree 1234\n"...),
			wantErr: ""},
	} {
		t.Run(reason, func(t *testing.T) {
			signer, err := keys.Verify(c.message, c.signature, now)
			if c.wantErr == "" && (err != nil || len(signer) != 40) ||
				c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("got %q, %v; want %q", signer, err, c.wantErr)
			}
		})
	}
}

func TestRead(t *testing.T) {
	key := newKey(t, nil)
	var binary, private bytes.Buffer
	if err := key.Serialize(&binary); err != nil {
		t.Fatal(err)
	}
	if keys, err := Read(binary.Bytes()); err != nil || keys.Len() != 1 {
		t.Errorf("a binary key: %v", err)
	}
	w, err := armor.Encode(&private, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := key.SerializePrivate(w, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for reason, file := range map[string][]byte{
		"empty": nil, "text": []byte("ssh-ed25519 AAAA"), "private key": private.Bytes(),
		"half":  public(t, key)[:200],
		"large": bytes.Repeat([]byte("\n"), maxKeyring+1), "damaged binary": append([]byte{0xc6}, "words"...),
	} {
		if _, err := Read(file); err == nil {
			t.Errorf("%s: no error", reason)
		}
	}
}

// The files are from GnuPG 2.2: gpg --armor --detach-sign, weak.asc with --digest-algo SHA1, and gpg --armor --export.
func TestVerifySignatureOfGnuPG(t *testing.T) {
	keys, err := Read(golden(t, "key.asc"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Verify(golden(t, "message"), golden(t, "message.asc"), made.AddDate(10, 0, 0)); err != nil {
		t.Error(err)
	}
	if _, err := keys.Verify(golden(t, "message"), golden(t, "weak.asc"), made.AddDate(10, 0, 0)); err == nil {
		t.Error("a signature over a SHA-1 hash is accepted")
	}
}

// TestStatedLengthsTakeNoMemory has signatures of a few bytes that state 2 GiB: alone, embedded in another, and hidden
// behind one. FuzzVerify found the first.
func TestStatedLengthsTakeNoMemory(t *testing.T) {
	key := newKey(t, nil)
	keys, err := Read(public(t, key))
	if err != nil {
		t.Fatal(err)
	}
	bomb := []byte{6, 0, 22, 8, 0x7f, 0xff, 0xff, 0xff}
	embedded := append([]byte{4, 0, 22, 8, 0, byte(len(bomb) + 2), byte(len(bomb) + 1), 32}, bomb...)
	embedded = append(embedded, 0, 0)
	packetOf := func(contents []byte) []byte { return append([]byte{0xc2, byte(len(contents))}, contents...) }
	block, err := armor.Decode(bytes.NewReader(sign(t, key, message, nil)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := packet.NewOpaqueReader(block.Body).Next()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"alone": packetOf(bomb), "embedded": packetOf(embedded),
		"hidden": packetOf(append(bytes.Clone(p.Contents), packetOf(bomb)...)),
	}
	for name, file := range files {
		signature := armored(t, openpgp.SignatureType, func(w io.Writer) error { _, err := w.Write(file); return err })
		var keyring bytes.Buffer
		if err := key.Serialize(&keyring); err != nil {
			t.Fatal(err)
		}
		keyring.Write(file)
		for use, read := range map[string]func() error{
			"signature": func() error { _, err := keys.Verify([]byte("another"), signature, made); return err },
			"keyring":   func() error { _, err := Read(keyring.Bytes()); return err },
		} {
			n := allocation.Bytes(func() {
				if err := read(); err == nil {
					t.Errorf("%s, %s: no error", name, use)
				}
			})
			if n > 8<<20 {
				t.Errorf("%s, %s: %d MiB were allocated", name, use, n>>20)
			}
		}
	}
}

// An operation with the largest key that OpenPGP can describe takes about a minute.
func TestLargeKeysAreRefused(t *testing.T) {
	large := largekey.New(t)
	power := func(bits uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), bits-1) }
	dsaKey := func(bits, order uint) *packet.PublicKey {
		return packet.NewDSAPublicKey(made, &dsa.PublicKey{Parameters: dsa.Parameters{P: power(bits), Q: power(order),
			G: big.NewInt(2)}, Y: big.NewInt(3)})
	}
	for name, test := range map[string]struct {
		key     interface{ Serialize(io.Writer) error }
		refused bool
	}{
		"RSA":                   {packet.NewRSAPublicKey(made, &large.PublicKey), true},
		"private RSA":           {packet.NewRSAPrivateKey(made, large), true},
		"DSA":                   {dsaKey(4097, 256), true},
		"DSA, order":            {dsaKey(2048, 513), true},
		"DSA as GnuPG makes it": {key: dsaKey(3072, 256)},
		"ElGamal": {packet.NewElGamalPublicKey(made, &elgamal.PublicKey{P: power(4097), G: big.NewInt(2),
			Y: big.NewInt(3)}), true},
		"long packet": {packet.NewElGamalPublicKey(made, &elgamal.PublicKey{P: power(4096), G: power(65000),
			Y: power(4096)}), true},
	} {
		var file bytes.Buffer
		if err := test.key.Serialize(&file); err != nil {
			t.Fatal(err)
		}
		_, err := ReadKeys(&file)
		if errors.Is(err, errLargeKey) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPassphrasesAreBounded has private keys whose passphrase needs the memory that their file says.
func TestPassphrasesAreBounded(t *testing.T) {
	for kib, want := range map[uint32]bool{1 << 16: true, 1 << 21: false} {
		key := newKey(t, nil)
		config := &packet.Config{AEADConfig: &packet.AEADConfig{}, S2KConfig: &s2k.Config{
			S2KMode: s2k.Argon2S2K, Argon2Config: &s2k.Argon2Config{NumberOfPasses: 1, DegreeOfParallelism: 1,
				Memory: 1 << 16}}}
		if err := key.EncryptPrivateKeys([]byte("words"), config); err != nil {
			t.Fatal(err)
		}
		protection, err := protectionOf(key.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := key.SerializePrivateWithoutSigning(&file, nil); err != nil {
			t.Fatal(err)
		}
		// The memory is stated by its logarithm, in the last byte of the parameters.
		stated := append(bytes.Clone(protection[:22]), byte(bits.Len32(kib)-1))
		damaged := bytes.ReplaceAll(file.Bytes(), protection[:23], stated)
		_, err = ReadKeyRing(damaged, "", []byte("words"))
		if got := !errors.Is(err, errCost); got != want {
			t.Errorf("%d MiB: the passphrase is tried: %t, error %v", kib>>10, got, err)
		}
		if want && err != nil {
			t.Error(err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	key := newKey(f, nil)
	keys, err := Read(public(f, key))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sign(f, key, message, nil))
	f.Add([]byte("-----BEGIN PGP SIGNATURE-----\n\n=\n" + signatureEnd))
	f.Fuzz(func(t *testing.T, signature []byte) {
		if _, err := keys.Verify([]byte("another message"), signature, made); err == nil {
			t.Error("a signature over another message is accepted")
		}
	})
}

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// at returns a configuration with a fixed time.
func at(now time.Time) *packet.Config { return &packet.Config{Time: func() time.Time { return now }} }

func newKey(tb testing.TB, config *packet.Config) *openpgp.Entity {
	tb.Helper()
	if config == nil {
		config = &packet.Config{}
	}
	config.Time, config.Algorithm = at(made).Time, packet.PubKeyAlgoEdDSA
	key, err := openpgp.NewEntity("Test", "", "test@example.com", config)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func public(tb testing.TB, key *openpgp.Entity) []byte {
	tb.Helper()
	return append(armored(tb, openpgp.PublicKeyType, key.Serialize), '\n')
}

// armored returns what a function writes, in armor.
func armored(tb testing.TB, kind string, write func(io.Writer) error) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, kind, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := write(w); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func sign(tb testing.TB, key *openpgp.Entity, message []byte, config *packet.Config) []byte {
	tb.Helper()
	signer := *key
	signer.Revocations = nil // a revoked key can still sign
	if config == nil {
		config = &packet.Config{}
	}
	config.Time = at(made.Add(time.Second)).Time
	var b bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&b, &signer, bytes.NewReader(message), config); err != nil {
		tb.Fatal(err)
	}
	return append(b.Bytes(), '\n')
}
