package openpgp

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

func TestReadKeyRing(t *testing.T) {
	first, second := newKey(t, nil), newKey(t, nil)
	var binary, armored, locked bytes.Buffer
	for _, key := range []*openpgp.Entity{first, second} {
		if err := key.SerializePrivate(&binary, nil); err != nil {
			t.Fatal(err)
		}
	}
	w, err := armor.Encode(&armored, openpgp.PrivateKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.SerializePrivate(w, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	secret := newKey(t, nil)
	if err := secret.EncryptPrivateKeys([]byte("open sesame"), nil); err != nil {
		t.Fatal(err)
	}
	if err := secret.SerializePrivateWithoutSigning(&locked, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file           []byte
		id, passphrase string
		want           string // of the error; the key can sign when empty
	}{
		"armored":           {file: armored.Bytes()},
		"binary, long ID":   {file: binary.Bytes(), id: second.PrimaryKey.KeyIdString()},
		"binary, short ID":  {file: binary.Bytes(), id: "0x" + strings.ToLower(first.PrimaryKey.KeyIdShortString())},
		"binary, no ID":     {file: binary.Bytes(), want: "more than one private key"},
		"unknown ID":        {file: binary.Bytes(), id: "0000000000000000", want: "no private key '0000"},
		"public":            {file: public(t, first), want: "no private key"},
		"not a keyring":     {file: []byte("hello"), want: "not an OpenPGP keyring"},
		"too large":         {file: make([]byte, maxKeyring+1), want: "too large"},
		"passphrase":        {file: locked.Bytes(), passphrase: "open sesame"},
		"no passphrase":     {file: locked.Bytes(), want: "encrypted"},
		"wrong passphrase":  {file: locked.Bytes(), passphrase: "x", want: "does not decrypt"},
		"truncated":         {file: binary.Bytes()[:40], want: "not an OpenPGP keyring"},
		"armored, wrong ID": {file: armored.Bytes(), id: second.PrimaryKey.KeyIdString(), want: "no private key"},
	} {
		key, err := ReadKeyRing(c.file, c.id, []byte(c.passphrase))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got error %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := key.Sign([]byte("message"), time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadKeyRing(f *testing.F) {
	var b bytes.Buffer
	if err := newKey(f, nil).SerializePrivate(&b, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), "ab")
	f.Add([]byte("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n\n"), "")
	f.Fuzz(func(_ *testing.T, file []byte, id string) {
		_, _ = ReadKeyRing(file, id, nil) // must not panic
	})
}
