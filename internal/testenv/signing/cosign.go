// Package signing signs artifacts in a registry for tests: with cosign and a key, with cosign and identities of a test
// Sigstore, and with notation.
package signing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/cosign/v3/pkg/oci/mutate"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/cosign/v3/pkg/oci/static"
	"github.com/sigstore/cosign/v3/pkg/types"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	inToto     = "application/vnd.in-toto+json"
)

// Target is an artifact to sign.
type Target struct {
	TB     testing.TB
	Image  name.Digest
	Access []remote.Option
}

// Key is a cosign key pair.
type Key struct {
	Public []byte // PEM
	signer signature.SignerVerifier
}

// NewKey generates a key pair.
func NewKey(tb testing.TB) *Key {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	signer, err := signature.LoadECDSASignerVerifier(private, crypto.SHA256)
	must(tb, err)
	public, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
	must(tb, err)
	return &Key{public, signer}
}

// Tagged signs as cosign did before version 3: under the tag sha256-<digest>.sig.
func (k *Key) Tagged(t Target) {
	t.TB.Helper()
	text, err := json.Marshal(payload.Cosign{Image: t.Image})
	must(t.TB, err)
	k.taggedAs(t, text)
}

// TaggedFor attaches a signature of another artifact.
func (k *Key) TaggedFor(t Target, other name.Digest) {
	t.TB.Helper()
	text, err := json.Marshal(payload.Cosign{Image: other})
	must(t.TB, err)
	k.taggedAs(t, text)
}

func (k *Key) taggedAs(t Target, text []byte) {
	t.TB.Helper()
	raw, err := k.signer.SignMessage(bytes.NewReader(text))
	must(t.TB, err)
	attach(t, text, raw)
}

// Bundle signs as cosign 3 does: with a bundle that refers to the artifact.
func (k *Key) Bundle(t Target) {
	t.TB.Helper()
	k.Statement(t, t.Image, types.CosignSignPredicateType)
}

// Statement attaches a signed statement with a predicate type. Its subject may be another artifact.
func (k *Key) Statement(t Target, about name.Digest, kind string) {
	t.TB.Helper()
	k.StatementAs(t, about, kind, kind)
}

// StatementAs is Statement with a separate predicate type in the annotations of the manifest.
func (k *Key) StatementAs(t Target, about name.Digest, kind, label string) {
	t.TB.Helper()
	text := statement(t.TB, about, kind)
	raw, err := k.signer.SignMessage(bytes.NewReader(preAuthentication(inToto, text)))
	must(t.TB, err)
	attachBundle(t, label, &protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_PublicKey{
				PublicKey: &protocommon.PublicKeyIdentifier{Hint: hint(k.Public)}},
		},
		Content: envelope(text, raw),
	})
}

func hint(public []byte) string {
	sum := sha256.Sum256(public)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func envelope(text, raw []byte) *protobundle.Bundle_DsseEnvelope {
	return &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
		Payload: text, PayloadType: inToto, Signatures: []*protodsse.Signature{{Sig: raw}},
	}}
}

// statement returns the in-toto statement about a digest that cosign signs in a bundle.
func statement(tb testing.TB, about name.Digest, kind string) []byte {
	tb.Helper()
	_, hex, _ := bytes.Cut([]byte(about.DigestStr()), []byte(":"))
	text, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": kind, "predicate": map[string]any{},
		"subject": []any{map[string]any{"name": about.Repository.Name(),
			"digest": map[string]string{"sha256": string(hex)}}},
	})
	must(tb, err)
	return text
}

// preAuthentication returns the pre-authentication encoding that DSSE signs.
func preAuthentication(kind string, text []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(text), text)
}

func attachBundle(t Target, label string, b *protobundle.Bundle) {
	t.TB.Helper()
	text, err := protojson.Marshal(b)
	must(t.TB, err)
	must(t.TB, ociremote.WriteAttestationNewBundleFormat(t.Image, text, label,
		ociremote.WithRemoteOptions(t.Access...)))
}

func attach(t Target, text, raw []byte, options ...static.Option) {
	t.TB.Helper()
	client := ociremote.WithRemoteOptions(append(t.Access, remote.WithContext(context.Background()))...)
	s, err := static.NewSignature(text, base64.StdEncoding.EncodeToString(raw), options...)
	must(t.TB, err)
	signed, err := ociremote.SignedImage(t.Image, client)
	must(t.TB, err)
	signed, err = mutate.AttachSignatureToImage(signed, s)
	must(t.TB, err)
	must(t.TB, ociremote.WriteSignatures(t.Image.Repository, signed, client))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
