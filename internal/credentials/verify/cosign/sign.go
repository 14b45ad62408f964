package cosign

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/oci/mutate"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/cosign/v3/pkg/oci/static"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Signer signs artifacts with a private key.
type Signer struct {
	Public []byte // the public key, PEM
	signer signature.Signer
}

// NewSigner returns a signer with a private key that `cosign generate-key-pair` wrote, and its password.
func NewSigner(key, password []byte) (*Signer, error) {
	signer, err := cosign.LoadPrivateKey(key, password, nil)
	if err != nil {
		return nil, err
	}
	public, err := signer.PublicKey()
	if err != nil {
		return nil, err
	}
	text, err := cryptoutils.MarshalPublicKeyToPEM(public)
	return &Signer{Public: text, signer: signer}, err
}

// Sign signs the manifest with a digest, and adds the signature to those under the tag that is derived from the digest.
func (s *Signer) Sign(ctx context.Context, image name.Digest, access ...remote.Option) error {
	text, err := json.Marshal(payload.Cosign{Image: image})
	if err != nil {
		return err
	}
	raw, err := s.signer.SignMessage(bytes.NewReader(text))
	if err != nil {
		return err
	}
	added, err := static.NewSignature(text, base64.StdEncoding.EncodeToString(raw))
	if err != nil {
		return err
	}
	client := ociremote.WithRemoteOptions(append(access, remote.WithContext(ctx))...)
	signed, err := ociremote.SignedImage(image, client)
	if err != nil {
		return err
	}
	if signed, err = mutate.AttachSignatureToImage(signed, added); err != nil {
		return err
	}
	return ociremote.WriteSignatures(image.Repository, signed, client)
}
