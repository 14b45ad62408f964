package signing

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ggcr "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/registry"
	"github.com/notaryproject/notation-go/signer"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
)

// envelopeType is the media type of notation signatures in JSON.
const envelopeType = "application/jose+json"

// Notary signs with notation and a certificate of a test authority.
type Notary struct {
	CA      []byte // PEM
	signer  notation.Signer
	root    *x509.Certificate
	rootKey *ecdsa.PrivateKey
}

// NewNotary returns a notary whose certificate expires at a time, and names URLs of lists of revoked certificates.
func NewNotary(tb testing.TB, until time.Time, lists ...string) *Notary {
	tb.Helper()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test CA", Organization: []string{"Sluice"},
			Country: []string{"DE"}, Province: []string{"BE"}},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "Release", Organization: []string{"Sluice"},
			Country: []string{"DE"}, Province: []string{"BE"}},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, CRLDistributionPoints: lists,
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	rootCert := certify(tb, root, root, &rootKey.PublicKey, rootKey)
	leafCert := certify(tb, leaf, rootCert, &leafKey.PublicKey, rootKey)
	s, err := signer.NewGenericSigner(leafKey, []*x509.Certificate{leafCert, rootCert})
	must(tb, err)
	return &Notary{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootCert.Raw}), s, rootCert, rootKey}
}

// List returns a list of revoked certificates, which are others than that of the notary.
func (n *Notary) List(tb testing.TB, revoked int) []byte {
	tb.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour),
		NextUpdate: time.Now().Add(time.Hour)}
	for range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: big.NewInt(99), RevocationTime: time.Now().Add(-time.Hour)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, n.root, n.rootKey)
	must(tb, err)
	return der
}

func certify(tb testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey,
	key *ecdsa.PrivateKey) *x509.Certificate {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	must(tb, err)
	c, err := x509.ParseCertificate(der)
	must(tb, err)
	return c
}

// Policy returns a trustpolicy.json that trusts any identity of the store ca:test, with the verification level strict,
// audit or skip.
func (n *Notary) Policy(level string) []byte {
	policy := map[string]any{
		"name": "test", "registryScopes": []string{"*"}, "signatureVerification": map[string]string{"level": level},
		"trustStores": []string{"ca:test"}, "trustedIdentities": []string{"*"},
	}
	if level == "skip" {
		delete(policy, "trustStores")
		delete(policy, "trustedIdentities")
	}
	text, err := json.Marshal(map[string]any{"version": "1.0", "trustPolicies": []any{policy}})
	if err != nil {
		panic(err) // maps of strings can be marshalled
	}
	return text
}

// Sign signs an artifact. The signature expires after at least one second, or never if expires is 0.
func (n *Notary) Sign(t Target, expires time.Duration) {
	t.TB.Helper()
	_, err := notation.Sign(t.TB.Context(), n.signer, pushing{t}, notation.SignOptions{
		ArtifactReference: t.Image.Name(),
		SignerSignOptions: notation.SignerSignOptions{SignatureMediaType: envelopeType, ExpiryDuration: expires},
	})
	must(t.TB, err)
}

// SignOther attaches the signature of another artifact.
func (n *Notary) SignOther(t Target, other name.Digest) {
	t.TB.Helper()
	d, err := remote.Head(other, t.Access...)
	must(t.TB, err)
	envelope, _, err := n.signer.Sign(t.TB.Context(), descriptor(*d),
		notation.SignerSignOptions{SignatureMediaType: envelopeType})
	must(t.TB, err)
	_, _, err = pushing{t}.PushSignature(t.TB.Context(), envelopeType, envelope, ocispec.Descriptor{}, nil)
	must(t.TB, err)
}

// pushing implements notation's repository interface for signing.
type pushing struct{ Target }

func (p pushing) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	d, err := remote.Head(p.Image, p.Access...)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return descriptor(*d), nil
}

func (p pushing) PushSignature(_ context.Context, mediaType string, envelope []byte, _ ocispec.Descriptor,
	annotations map[string]string) (blob, manifest ocispec.Descriptor, err error) {
	layers := []v1.Layer{ggcr.NewLayer(bytes.Clone(envelope), types.MediaType(mediaType))}
	return blob, manifest, ociremote.WriteReferrer(p.Image, registry.ArtifactTypeNotation, layers, annotations,
		ociremote.WithRemoteOptions(p.Access...))
}

func (pushing) ListSignatures(context.Context, ocispec.Descriptor, func([]ocispec.Descriptor) error) error {
	return nil
}

func (pushing) FetchSignatureBlob(context.Context, ocispec.Descriptor) (envelope []byte, d ocispec.Descriptor,
	err error) {
	return nil, d, nil
}

func descriptor(d v1.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size}
}
