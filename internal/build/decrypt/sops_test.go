package decrypt

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keys"
	"github.com/getsops/sops/v3/pgp"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	"github.com/getsops/sops/v3/stores/json"
	"github.com/getsops/sops/v3/stores/yaml"
)

// store is a file format that SOPS can encrypt.
type store interface {
	LoadPlainFile(in []byte) (sops.TreeBranches, error)
	EmitEncryptedFile(in sops.Tree) ([]byte, error)
}

func storeFor(format string) store {
	stores := config.NewStoresConfig()
	switch format {
	case "json":
		return json.NewStore(&stores.JSON)
	case "dotenv":
		return dotenv.NewStore(&stores.Dotenv)
	case "ini":
		return ini.NewStore(&stores.INI)
	case "binary":
		return json.NewBinaryStore(&stores.JSONBinary)
	default:
		return yaml.NewStore(&stores.YAML)
	}
}

// encrypt works like the sops command. It encrypts the data key with age keys; for other keys, the caller has encrypted
// it already.
func encrypt(t testing.TB, format, plain string, dataKey []byte, masters ...keys.MasterKey) []byte {
	t.Helper()
	s := storeFor(format)
	branches, err := s.LoadPlainFile([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	if dataKey == nil {
		dataKey = newDataKey(t)
	}
	for _, m := range masters {
		if _, ok := m.(*sopsage.MasterKey); !ok {
			continue
		}
		if err := m.Encrypt(dataKey); err != nil {
			t.Fatal(err)
		}
	}
	tree := sops.Tree{Branches: branches, Metadata: sops.Metadata{
		KeyGroups: []sops.KeyGroup{masters}, Version: "3.13.3", EncryptedRegex: "", LastModified: time.Now().UTC(),
	}}
	if strings.Contains(plain, "kind: Secret") {
		tree.Metadata.EncryptedRegex = "^(data|stringData)$"
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(dataKey, cipher)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Metadata.MessageAuthenticationCode,
		err = cipher.Encrypt(mac, dataKey, tree.Metadata.LastModified.Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	b, err := s.EmitEncryptedFile(tree)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("hunter2")) {
		t.Fatalf("not encrypted: %s", b)
	}
	return b
}

func newDataKey(t testing.TB) []byte {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	return key
}

// newAge generates a key. It returns the entry for a Secret, and the recipient for SOPS.
func newAge(t testing.TB) (private string, master keys.MasterKey) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return "# created: today\n" + identity.String() + "\n", ageMaster(t, identity.Recipient().String())
}

func newHybrid(t testing.TB) (private string, master keys.MasterKey) {
	t.Helper()
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return identity.String(), ageMaster(t, identity.Recipient().String())
}

func ageMaster(t testing.TB, recipient string) keys.MasterKey {
	t.Helper()
	m, err := sopsage.MasterKeyFromRecipient(recipient)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newOpenPGP generates a key, and a data key encrypted for it.
func newOpenPGP(t testing.TB, dataKey []byte) (private string, master keys.MasterKey) {
	t.Helper()
	entity, err := openpgp.NewEntity("Test", "", "test@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var key, message bytes.Buffer
	w, err := armor.Encode(&key, openpgp.PrivateKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := entity.SerializePrivate(w, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err = armor.Encode(&message, "PGP MESSAGE", nil); err != nil {
		t.Fatal(err)
	}
	plain, err := openpgp.Encrypt(w, []*openpgp.Entity{entity}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, plain, dataKey)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	m := pgp.NewMasterKeyFromFingerprint(strings.ToUpper(hexOf(entity.PrimaryKey.Fingerprint)))
	m.EncryptedKey = message.String()
	return key.String(), m
}

func hexOf(b []byte) string {
	const digits = "0123456789ABCDEF"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
