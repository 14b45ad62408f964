package helm

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"helm.sh/helm/v4/pkg/provenance"
)

// newKey returns an OpenPGP key, and its keyring in binary and armored form.
func newKey(t *testing.T, lifetime time.Duration) (key *openpgp.Entity, binary, armored []byte) {
	t.Helper()
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: uint32(lifetime.Seconds())}
	key, err := openpgp.NewEntity("team", "", "team@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	var raw, text bytes.Buffer
	if err := key.Serialize(&raw); err != nil {
		t.Fatal(err)
	}
	w, err := armor.Encode(&text, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return key, raw.Bytes(), text.Bytes()
}

// sign signs a package like helm package --sign.
func sign(t *testing.T, key *openpgp.Entity, file string, data []byte) []byte {
	t.Helper()
	prov, err := (&provenance.Signatory{Entity: key}).ClearSign(data, file, []byte("apiVersion: v2\nname: app\n"))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(prov)
}

func TestVerifyProvenance(t *testing.T) {
	key, binary, armored := newKey(t, 0)
	stranger, other, _ := newKey(t, 0)
	data := packaged(t, newChart("app", "1.0.0"))
	o := Offer{Name: "app", Version: "1.0.0"}
	prov := sign(t, key, "app-1.0.0.tgz", data)
	now := time.Now()
	if _, err := VerifyProvenance(binary, prov, Offer{Name: "team/app", Version: "1.0.0"}, data, now); err != nil {
		t.Errorf("chart with a path: %v", err)
	}
	for _, keyring := range [][]byte{binary, armored, append(bytes.Clone(other), binary...)} {
		if by, err := VerifyProvenance(keyring, prov, o, data, now); err != nil || len(by) != 40 {
			t.Fatalf("signed by %q: %v", by, err)
		}
	}
	short, expired, _ := newKey(t, time.Hour)
	for name, test := range map[string]struct {
		keyring, prov, data []byte
		o                   Offer
		now                 time.Time
		want                string
	}{
		"another key": {keyring: binary, prov: sign(t, stranger, "app-1.0.0.tgz", data), data: data, o: o, now: now,
			want: "not trusted"},
		"another package": {keyring: binary, prov: prov, data: append(bytes.Clone(data), 0), o: o, now: now,
			want: "it contains the digest"},
		"another version": {keyring: binary, prov: prov, data: data, o: Offer{Name: "app", Version: "1.0.1"}, now: now,
			want: "it does not contain app-1.0.1.tgz"},
		"changed text": {keyring: binary, prov: bytes.Replace(prov, []byte("name: app"), []byte("name: abb"), 1),
			data: data, o: o, now: now,
			want: "does not match the content"},
		"two signatures": {keyring: binary, prov: append(bytes.Clone(prov), prov...), data: data, o: o, now: now,
			want: "not a single signed message"},
		"no signature": {keyring: binary, prov: []byte("files: {}"), data: data, o: o, now: now,
			want: "not a single signed message"},
		"no list of files": {keyring: binary, prov: signText(t, key, "only this\n"), data: data, o: o, now: now,
			want: "cannot parse the signed message"},
		"expired key": {keyring: expired, prov: sign(t, short, "app-1.0.0.tgz", data), data: data, o: o,
			now:  now.Add(2 * time.Hour),
			want: "expired"},
		"no keyring": {keyring: nil, prov: prov, data: data, o: o, now: now,
			want: "no OpenPGP public key. Create it with: gpg --export KEY > pubring.gpg"},
		"invalid keyring": {keyring: []byte("text"), prov: prov, data: data, o: o, now: now, want: "pubring.gpg"},
		"another signature": {keyring: binary, prov: []byte(strings.Split(string(prov),
			signatureBegin)[0] + signatureBegin + strings.Split(string(sign(t, key, "x", nil)), signatureBegin)[1]),
			data: data, o: o, now: now, want: "does not match the content"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := VerifyProvenance(test.keyring, test.prov, test.o, test.data, test.now)
			requireFault(t, err, "VerificationError", test.want)
		})
	}
}

// signText signs a text that is not a provenance file.
func signText(t *testing.T, key *openpgp.Entity, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, key.PrivateKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzProvenance checks that provenance files without a valid signature are refused without a panic.
func FuzzProvenance(f *testing.F) {
	key, err := openpgp.NewEntity("team", "", "team@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		f.Fatal(err)
	}
	var keyring bytes.Buffer
	if err := key.Serialize(&keyring); err != nil {
		f.Fatal(err)
	}
	prov, err := (&provenance.Signatory{Entity: key}).ClearSign([]byte("data"), "app-1.0.0.tgz", []byte("name: app\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(prov))
	f.Add([]byte("-----BEGIN PGP SIGNED MESSAGE-----\n\n-----BEGIN PGP SIGNATURE-----\n-----END PGP SIGNATURE-----\n"))
	f.Fuzz(func(t *testing.T, prov []byte) {
		if _, err := VerifyProvenance(keyring.Bytes(), prov, Offer{Name: "app", Version: "2.0.0"}, []byte("data"),
			time.Now()); err == nil {
			t.Fatal("an unsigned version is trusted")
		}
	})
}
