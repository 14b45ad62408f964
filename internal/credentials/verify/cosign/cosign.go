// Package cosign verifies cosign signatures of artifacts in a registry, by trusted public keys or by trusted identities
// (keyless). It reads both forms in which cosign stores signatures: bundles that refer to the artifact (cosign 3), and
// the older "sha256-….sig" tags.
//
// Verification sends requests to the registry only, and to the TUF repository of the public trust root. A keyless
// signature must include the proof of its transparency log.
package cosign

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/types"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Reason is the condition reason for a signature that is missing or not trusted.
const Reason = sourcev1.VerificationErrorReason

// shownFailures is the maximum number of causes in an error.
const shownFailures = 3

// Identity is a trusted identity for keyless signatures: Go regular expressions for the issuer and the subject of the
// certificate.
type Identity struct{ Issuer, Subject string }

// Verifier verifies signatures by trusted keys or identities. It is safe for concurrent use.
type Verifier struct {
	signers []signer
	public  *PublicRoot // source of the trust root; nil if the signers have one
}

// signer is a trusted key or identity.
type signer struct {
	name   string
	checks cosign.CheckOpts
}

// Keys returns a verifier for the public keys in the data of a Secret: all entries whose name ends in ".pub", in PEM.
func Keys(data map[string][]byte) (*Verifier, error) {
	v := &Verifier{}
	for _, entry := range slices.Sorted(maps.Keys(data)) {
		if !strings.HasSuffix(entry, ".pub") {
			continue
		}
		public, err := cryptoutils.UnmarshalPEMToPublicKey(data[entry])
		if err != nil {
			return nil, invalidConfig("cannot parse the key '%s' of the Secret", entry).Because(err)
		}
		if err := keysize.Check(public); err != nil {
			return nil, invalidConfig("the key '%s' of the Secret is not supported", entry).Because(err)
		}
		key, err := signature.LoadVerifier(public, crypto.SHA256)
		if err != nil {
			return nil, invalidConfig("the key '%s' of the Secret is not supported", entry).Because(err)
		}
		// a key needs no transparency log to prove when it signed
		v.signers = append(v.signers, signer{"key '" + entry + "'",
			cosign.CheckOpts{SigVerifier: key, IgnoreTlog: true, Offline: true}})
	}
	if len(v.signers) == 0 {
		return nil, invalidConfig("the Secret contains no public key").
			WithHint("Add the file cosign.pub that cosign generate-key-pair creates")
	}
	return v, nil
}

// Keyless returns a verifier for identities. trustedRoot is the content of a trusted_root.json; the root of the public
// Sigstore instance is used if it is nil. Without identities, all identities of trustedRoot are trusted.
func Keyless(identities []Identity, trustedRoot []byte, public *PublicRoot) (*Verifier, error) {
	if len(identities) == 0 && trustedRoot != nil {
		// the private authority issues certificates to trusted identities only
		identities = []Identity{{Issuer: ".*", Subject: ".*"}}
	}
	if len(identities) == 0 {
		return nil, invalidConfig("spec.verify has no identities, so every identity would be trusted").
			WithHint("Set spec.verify.matchOIDCIdentity to the trusted identities, or spec.verify.secretRef to a " +
				"Secret with public keys")
	}
	v := &Verifier{public: public}
	for _, id := range identities {
		for _, expression := range []string{id.Issuer, id.Subject} {
			if _, err := regex.Compile(expression); err != nil || expression == "" {
				return nil, invalidConfig("'%.100s' in spec.verify.matchOIDCIdentity is not a valid regular "+
					"expression", expression).Because(err)
			}
		}
		v.signers = append(v.signers, signer{
			fmt.Sprintf("identity '%s' of '%s'", id.Subject, id.Issuer),
			cosign.CheckOpts{Identities: []cosign.Identity{{IssuerRegExp: id.Issuer, SubjectRegExp: id.Subject}},
				Offline: true},
		})
	}
	if trustedRoot == nil {
		return v, nil
	}
	material, err := root.NewTrustedRootFromJSON(trustedRoot)
	if err != nil {
		return nil, invalidConfig("cannot parse the trusted root").Because(err)
	}
	if err := checkRoot(material); err != nil {
		return nil, invalidConfig("the trusted root cannot be used").Because(err)
	}
	v.public = nil
	return v, v.setRoot(material)
}

// setRoot sets the trust root of all signers. Proofs for which the root has no keys are not required. But either a
// transparency log or a timestamp authority is required: certificates are valid for minutes only, so something must
// prove when they were used.
func (v *Verifier) setRoot(material root.TrustedMaterial) error {
	noLog := len(material.RekorLogs()) == 0
	if noLog && len(material.TimestampingAuthorities()) == 0 || len(material.FulcioCertificateAuthorities()) == 0 {
		return invalidConfig("the trusted root needs a certificate authority, and a transparency log or a timestamp " +
			"authority")
	}
	for i := range v.signers {
		c := &v.signers[i].checks
		c.TrustedMaterial = material
		c.IgnoreSCT = len(material.CTLogs()) == 0
		c.IgnoreTlog, c.UseSignedTimestamps = noLog, noLog
	}
	return nil
}

// Verify verifies the signatures of the manifest with the digest, and returns the name of the signer. The error is a
// fault with the reason VerificationError.
func (v *Verifier) Verify(ctx context.Context, image name.Digest, access ...remote.Option) (string, error) {
	if v.public != nil {
		material, err := v.public.get(ctx)
		if err != nil {
			return "", failed(image, "cannot fetch the trust root of the public Sigstore instance").Because(err)
		}
		v = &Verifier{signers: slices.Clone(v.signers)}
		if err := v.setRoot(material); err != nil {
			return "", err
		}
	}
	digest, err := v1.NewHash(image.DigestStr())
	if err != nil {
		return "", failed(image, "cannot parse the digest").Because(err)
	}
	access = append(slices.Clip(access), remote.WithContext(ctx))
	found, err := candidates(image, access)
	if err != nil {
		return "", failed(image, "cannot read its signatures").Because(err).After(retryAfter(err))
	}
	if len(found) == 0 {
		return "", failed(image, "it is not signed").
			WithHint("Sign it with cosign sign, and store the signature in the same repository")
	}
	var failures []string
	for _, s := range v.signers {
		for _, c := range found {
			if err := ctx.Err(); err != nil {
				return "", failed(image, "its signatures could not all be checked in time").Because(err)
			}
			err := c.check(ctx, digest, s.checks)
			if err == nil {
				return s.name, nil
			}
			failures = append(failures, fmt.Sprintf("%s is not by %s: %v", c.name, s.name, err))
		}
	}
	return "", failed(image, "no signature is by a trusted signer").
		Because(errors.New(strings.Join(failures[:min(len(failures), shownFailures)], "; ")))
}

// checkRoot returns an error if a key of a trust root takes long to verify with.
func checkRoot(material root.TrustedMaterial) error {
	var chain []*x509.Certificate
	for _, a := range material.FulcioCertificateAuthorities() {
		if a, ok := a.(*root.FulcioCertificateAuthority); ok {
			chain = append(append(chain, a.Root), a.Intermediates...)
		}
	}
	for _, a := range material.TimestampingAuthorities() {
		if a, ok := a.(*root.SigstoreTimestampingAuthority); ok {
			chain = append(append(chain, a.Root, a.Leaf), a.Intermediates...)
		}
	}
	for _, logs := range []map[string]*root.TransparencyLog{material.RekorLogs(), material.CTLogs()} {
		for _, l := range logs {
			if err := keysize.Check(l.PublicKey); err != nil {
				return err
			}
		}
	}
	return keysize.CheckChain(chain...)
}

// checkBundle verifies a bundle of cosign 3. Other statements, such as an SBOM, are not signatures of the
// artifact, even if a trusted signer made them.
func checkBundle(ctx context.Context, bundle verify.SignedEntity, digest v1.Hash, checks cosign.CheckOpts) error {
	content, err := bundle.VerificationContent()
	if err != nil {
		return err
	}
	chain := append([]*x509.Certificate{content.Certificate()}, content.Intermediates()...)
	if err := keysize.CheckChain(chain...); err != nil {
		return err
	}
	raw, err := hex.DecodeString(digest.Hex)
	if err != nil {
		return err
	}
	result, err := cosign.VerifyNewBundle(ctx, &checks, verify.WithArtifactDigest(digest.Algorithm, raw), bundle)
	if err != nil {
		return err
	}
	if result.Statement == nil || result.Statement.PredicateType != types.CosignSignPredicateType {
		return errors.New("it is a statement about the artifact, not a signature")
	}
	return nil
}

func invalidConfig(format string, args ...any) *fault.Fault {
	return fault.New(Reason, format, args...).Final()
}

func failed(image name.Digest, why string) *fault.Fault {
	return fault.New(Reason, "cannot verify '%s' with cosign: %s", image.Name(), why)
}
