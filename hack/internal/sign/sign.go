// Package sign signs releases as cosign does: with a key, or with a short-lived certificate for the identity that a
// token proves ("keyless"). Its results are Sigstore bundles, which cosign and Sluice verify.
package sign

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/providers"
	_ "github.com/sigstore/cosign/v3/pkg/providers/envvar" // SIGSTORE_ID_TOKEN
	_ "github.com/sigstore/cosign/v3/pkg/providers/github" // tokens of GitHub Actions
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/protobuf/encoding/protojson"
)

// inToto is the type of statements.
const inToto = "application/vnd.in-toto+json"

// audience is who tokens of identities are for.
const audience = "sigstore"

// Options say what to sign with. With neither a key nor a token in the environment nothing is signed.
type Options struct {
	KeyFile   string // private key in PEM; that of cosign is encrypted with COSIGN_PASSWORD
	FulcioURL string // issues certificates
	RekorURL  string // transparency log
}

// Signer signs with one key.
type Signer struct {
	keys    sign.Keypair
	options sign.BundleOptions
	Name    string // for people: what it signs with
}

// New returns the signer that the options and the environment name, or nil if they name none. The private key is in a
// file, or in the environment variable COSIGN_PRIVATE_KEY.
func New(ctx context.Context, o Options) (*Signer, error) {
	key := []byte(os.Getenv("COSIGN_PRIVATE_KEY"))
	if o.KeyFile != "" {
		var err error
		if key, err = os.ReadFile(o.KeyFile); err != nil {
			return nil, fmt.Errorf("cannot read the private key: %w", err)
		}
	}
	if len(key) > 0 {
		keys, err := parseKey(key, []byte(os.Getenv("COSIGN_PASSWORD")))
		return &Signer{keys: keys, Name: "the key"}, err
	}
	if !providers.Enabled(ctx) {
		return nil, nil
	}
	token, err := providers.Provide(ctx, audience)
	if err != nil {
		return nil, fmt.Errorf("cannot get a token for the identity that signs: %w", err)
	}
	keys, err := sign.NewEphemeralKeypair(nil)
	return &Signer{keys: keys, Name: "the identity of the environment", options: sign.BundleOptions{
		CertificateProvider:        sign.NewFulcio(&sign.FulcioOptions{BaseURL: o.FulcioURL, Retries: 2}),
		CertificateProviderOptions: &sign.CertificateProviderOptions{IDToken: token},
		TransparencyLogs: []sign.Transparency{
			sign.NewRekor(&sign.RekorOptions{BaseURL: o.RekorURL, Retries: 2})},
	}}, err
}

// Statement returns a bundle with a signed in-toto statement.
func (s *Signer) Statement(ctx context.Context, statement []byte) ([]byte, error) {
	return s.bundle(ctx, &sign.DSSEData{Data: statement, PayloadType: inToto})
}

// Blob returns a bundle with a signature of a file.
func (s *Signer) Blob(ctx context.Context, content []byte) ([]byte, error) {
	return s.bundle(ctx, &sign.PlainData{Data: content})
}

// PublicKey returns the public key in PEM, or nil if the signer has an identity instead of a key.
func (s *Signer) PublicKey() ([]byte, error) {
	if s.options.CertificateProvider != nil {
		return nil, nil
	}
	public, err := s.keys.GetPublicKeyPem()
	return []byte(public), err
}

func (s *Signer) bundle(ctx context.Context, content sign.Content) ([]byte, error) {
	options := s.options
	options.Context = ctx
	b, err := sign.Bundle(content, s.keys, options)
	if err != nil {
		return nil, fmt.Errorf("cannot sign with %s: %w", s.Name, err)
	}
	return protojson.Marshal(b)
}

// key is a private key of the owner of a release. It implements [sign.Keypair].
type key struct {
	private crypto.Signer
	details signature.AlgorithmDetails
	hint    []byte
}

// parseKey parses a private key: one that `cosign generate-key-pair` encrypted, or one in PKCS #8 or SEC 1.
func parseKey(pemKey, password []byte) (*key, error) {
	private, err := decode(pemKey, password)
	if err != nil {
		return nil, errors.New("the private key is not readable. Use a key of cosign generate-key-pair with its " +
			"password in COSIGN_PASSWORD, or an unencrypted key in PEM")
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the private key is a %T, which cannot sign", private)
	}
	details, err := signature.GetDefaultAlgorithmDetails(signer.Public())
	if err != nil {
		return nil, fmt.Errorf("the private key is not supported: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return &key{private: signer, details: details, hint: []byte(base64.StdEncoding.EncodeToString(sum[:]))}, nil
}

func decode(pemKey, password []byte) (crypto.PrivateKey, error) {
	block, _ := pem.Decode(pemKey)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	if block.Type != cosign.CosignPrivateKeyPemType && block.Type != cosign.SigstorePrivateKeyPemType {
		return cryptoutils.UnmarshalPEMToPrivateKey(pemKey, cryptoutils.SkipPassword)
	}
	der, err := encrypted.Decrypt(block.Bytes, password)
	if err != nil {
		return nil, err
	}
	return x509.ParsePKCS8PrivateKey(der)
}

// GetHashAlgorithm implements [sign.Keypair].
func (k *key) GetHashAlgorithm() protocommon.HashAlgorithm { return k.details.GetProtoHashType() }

// GetSigningAlgorithm implements [sign.Keypair].
func (k *key) GetSigningAlgorithm() protocommon.PublicKeyDetails {
	return k.details.GetSignatureAlgorithm()
}

// GetHint implements [sign.Keypair].
func (k *key) GetHint() []byte { return k.hint }

// GetKeyAlgorithm implements [sign.Keypair]. Only requests for certificates need it, which keys do not send.
func (k *key) GetKeyAlgorithm() string { return "" }

// GetPublicKey implements [sign.Keypair].
func (k *key) GetPublicKey() crypto.PublicKey { return k.private.Public() }

// GetPublicKeyPem implements [sign.Keypair].
func (k *key) GetPublicKeyPem() (string, error) {
	public, err := cryptoutils.MarshalPublicKeyToPEM(k.private.Public())
	return string(public), err
}

// SignData implements [sign.Keypair]: it returns the signature and what was signed, a digest except for Ed25519.
func (k *key) SignData(_ context.Context, data []byte) (signed, digest []byte, err error) {
	hash := k.details.GetHashType()
	digest = data
	if hash != crypto.Hash(0) {
		h := hash.New()
		h.Write(data)
		digest = h.Sum(nil)
	}
	signed, err = k.private.Sign(rand.Reader, digest, hash)
	return signed, digest, err
}
