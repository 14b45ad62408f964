package decrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	agearmor "filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/getsops/sops/v3/keyservice"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// service is the key service for one part of a file. It uses only the given keys.
type service struct {
	ctx   context.Context // of the build; SOPS does not pass a context
	keys  *Keys
	tries []try
}

// try is a failed attempt to decrypt with a key.
type try struct {
	key string
	err error
}

var errOnlyDecrypts = errors.New("this key service only decrypts")

// Encrypt implements keyservice.KeyServiceServer.
func (s *service) Encrypt(context.Context, *keyservice.EncryptRequest) (*keyservice.EncryptResponse, error) {
	return nil, errOnlyDecrypts
}

// Decrypt implements keyservice.KeyServiceServer.
func (s *service) Decrypt(_ context.Context, req *keyservice.DecryptRequest) (*keyservice.DecryptResponse, error) {
	name, plain, err := s.decrypt(req.Key, req.Ciphertext)
	if err != nil {
		s.tries = append(s.tries, try{name, err})
		return nil, err
	}
	return &keyservice.DecryptResponse{Plaintext: plain}, nil
}

func (s *service) decrypt(key *keyservice.Key, ciphertext []byte) (name string, plain []byte, err error) {
	switch k := key.KeyType.(type) {
	case *keyservice.Key_AgeKey:
		plain, err = s.keys.withAge(ciphertext)
		return "age " + k.AgeKey.Recipient, plain, err
	case *keyservice.Key_PgpKey:
		plain, err = s.keys.withOpenPGP(ciphertext)
		return "OpenPGP " + k.PgpKey.Fingerprint, plain, err
	case *keyservice.Key_KmsKey:
		plain, err = s.keys.withAWS(s.ctx, k.KmsKey, ciphertext)
		return "AWS KMS " + k.KmsKey.Arn, plain, err
	case *keyservice.Key_GcpKmsKey:
		plain, err = s.keys.withGCP(s.ctx, k.GcpKmsKey, ciphertext)
		return "GCP KMS " + k.GcpKmsKey.ResourceId, plain, err
	case *keyservice.Key_AzureKeyvaultKey:
		plain, err = s.keys.withAzure(s.ctx, k.AzureKeyvaultKey, ciphertext)
		return "Azure Key Vault " + k.AzureKeyvaultKey.VaultUrl + "/keys/" + k.AzureKeyvaultKey.Name, plain, err
	case *keyservice.Key_VaultKey:
		plain, err = s.keys.withVault(s.ctx, k.VaultKey, ciphertext)
		return fmt.Sprintf("Vault %s, key %s of %s", k.VaultKey.VaultAddress, k.VaultKey.KeyName,
			k.VaultKey.EnginePath), plain, err
	default:
		return "a kind of key that Sluice does not know", nil, errNotAtHand
	}
}

// errNotAtHand means that no given key or credential matches.
var errNotAtHand = errors.New("not among the keys given")

// missing returns the error that lists the keys of the file, and the reason why each failed.
func (s *service) missing(name string) error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	var texts []string
	var cause error
	for _, t := range s.tries {
		texts = append(texts, t.key+": "+excerpt.Line(t.err.Error(), maxWords))
		if !errors.Is(t.err, errNotAtHand) {
			cause = ErrService
		}
	}
	if len(texts) == 0 {
		return damaged(name)
	}
	f := failed("%s cannot be decrypted: none of its keys worked (%s)", name, strings.Join(texts, "; ")).
		WithHint("Add one of these keys to the Secret of spec.decryption.secretRef, or encrypt the file for a key " +
			"in that Secret")
	if ignored := s.keys.Ignored; len(ignored) > 0 {
		f.Hint = fmt.Sprintf("The entries of the Secret must be named *%s, *%s or sops.*, but it has %s. Rename them, "+
			"or add one of these keys", ageSuffix, openPGPSuffix,
			excerpt.Line("'"+strings.Join(ignored, "', '")+"'", maxWords))
	}
	f.Err = quiet{cause}
	if cause == nil {
		f.Err = nil
	} else {
		f.Hint = "Check that the controller can reach the service of a key and may decrypt with it, or add one of " +
			"these keys to the Secret of spec.decryption.secretRef"
	}
	return f
}

// quiet wraps an error. It is not meant to be printed.
type quiet struct{ error }

func (q quiet) Unwrap() error { return q.error }

// maxWords is the maximum length of the part of a service's error that is shown.
const maxWords = 300

// maxDataKey is the maximum size of a decrypted data key, in bytes. A data key has 32 bytes, or is a share of one.
const maxDataKey = 4096

func readKey(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, maxDataKey))
}

func (k *Keys) withAge(ciphertext []byte) ([]byte, error) {
	if len(k.Age) == 0 {
		return nil, errNotAtHand
	}
	r, err := age.Decrypt(agearmor.NewReader(bytes.NewReader(ciphertext)), k.Age...)
	if err != nil {
		return nil, errNotAtHand
	}
	return readKey(r)
}

func (k *Keys) withOpenPGP(ciphertext []byte) ([]byte, error) {
	if len(k.OpenPGP) == 0 {
		return nil, errNotAtHand
	}
	block, err := armor.Decode(bytes.NewReader(ciphertext))
	if err != nil {
		return nil, errors.New("the encrypted key is not in armor")
	}
	return k.decryptMessage(block.Body)
}
