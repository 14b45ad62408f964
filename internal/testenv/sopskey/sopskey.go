// Package sopskey encrypts files of tests with SOPS.
package sopskey

import (
	"crypto/rand"
	"regexp"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	"github.com/getsops/sops/v3/stores/json"
	"github.com/getsops/sops/v3/stores/yaml"
)

// Key encrypts files for an age key, like the sops command.
type Key struct {
	tb         testing.TB
	PrivateKey string // for a Secret
	Recipient  string // for encrypted files
}

// New generates a key.
func New(tb testing.TB) *Key {
	tb.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	return &Key{tb: tb, PrivateKey: identity.String(), Recipient: identity.Recipient().String()}
}

var object = regexp.MustCompile(`(?m)^kind: `)

// Encrypt encrypts a text of the format yaml, json, dotenv, ini or binary. It encrypts only data and stringData of
// Kubernetes objects.
func (s *Key) Encrypt(format, plain string) string {
	s.tb.Helper()
	stores := config.NewStoresConfig()
	store := map[string]interface {
		LoadPlainFile(in []byte) (sops.TreeBranches, error)
		EmitEncryptedFile(in sops.Tree) ([]byte, error)
	}{
		"yaml": yaml.NewStore(&stores.YAML), "json": json.NewStore(&stores.JSON),
		"dotenv": dotenv.NewStore(&stores.Dotenv),
		"ini":    ini.NewStore(&stores.INI), "binary": json.NewBinaryStore(&stores.JSONBinary),
	}[format]
	branches, err := store.LoadPlainFile([]byte(plain))
	s.must(err)
	master, err := sopsage.MasterKeyFromRecipient(s.Recipient)
	s.must(err)
	key := make([]byte, 32)
	_, err = rand.Read(key)
	s.must(err)
	s.must(master.Encrypt(key))
	tree := sops.Tree{Branches: branches, Metadata: sops.Metadata{
		KeyGroups: []sops.KeyGroup{{master}}, Version: "3.13.3", LastModified: time.Now().UTC(),
	}}
	if object.MatchString(plain) {
		tree.Metadata.EncryptedRegex = "^(data|stringData)$"
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(key, cipher)
	s.must(err)
	tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key,
		tree.Metadata.LastModified.Format(time.RFC3339))
	s.must(err)
	b, err := store.EmitEncryptedFile(tree)
	s.must(err)
	return string(b)
}

func (s *Key) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}
