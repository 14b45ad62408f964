// Package cosign checks that an artifact in a registry carries a cosign signature of someone who is trusted:
// of the holder of a key, or keyless, of an identity that a certificate authority vouched for. Both ways that
// cosign stores signatures are understood: bundles that refer to the artifact (cosign 3), and the older
// "sha256-….sig" tags.
//
// Nothing but the registry is asked: signatures of identities must bring the proof of their transparency log with them.
package cosign

import (
	"context"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Reason is the documented condition reason of a signature that is missing or not trusted.
const Reason = sourcev1.VerificationErrorReason

// shownFailures is how many reasons of a refusal are told.
const shownFailures = 3

// Identity is who may have signed keyless: Go regular expressions for the issuer and the subject of the certificate.
type Identity struct{ Issuer, Subject string }

// Verifier trusts the signatures of some keys or identities. It is safe for concurrent use.
type Verifier struct {
	signers []signer
	public  *PublicRoot // where the trust root comes from when none is given
}

// signer is one who is trusted.
type signer struct {
	name   string
	checks cosign.CheckOpts
}

// Keys returns a verifier that trusts the public keys in a Secret: all entries whose name ends in ".pub", PEM.
func Keys(data map[string][]byte) (*Verifier, error) {
	v := &Verifier{}
	for _, entry := range slices.Sorted(maps.Keys(data)) {
		if !strings.HasSuffix(entry, ".pub") {
			continue
		}
		public, err := cryptoutils.UnmarshalPEMToPublicKey(data[entry])
		if err != nil {
			return nil, unusable("the key '%s' of the Secret cannot be read", entry).Because(err)
		}
		key, err := signature.LoadVerifier(public, crypto.SHA256)
		if err != nil {
			return nil, unusable("the key '%s' of the Secret cannot be used", entry).Because(err)
		}
		// A key is trusted by itself: it needs no log to say when it signed.
		v.signers = append(v.signers, signer{"key '" + entry + "'",
			cosign.CheckOpts{SigVerifier: key, IgnoreTlog: true, Offline: true}})
	}
	if len(v.signers) == 0 {
		return nil, unusable("the Secret holds no public key").
			WithHint("Add the file that cosign generate-key-pair wrote, as cosign.pub")
	}
	return v, nil
}

// Keyless returns a verifier that trusts identities. TrustedRoot is a trusted_root.json; without one the root
// of the public Sigstore instance is used.
func Keyless(identities []Identity, trustedRoot []byte, public *PublicRoot) (*Verifier, error) {
	if len(identities) == 0 && trustedRoot != nil {
		identities = []Identity{{".*", ".*"}} // whoever the own authority vouches for
	}
	if len(identities) == 0 {
		return nil, unusable("spec.verify trusts any identity that ever signed").
			WithHint("Say in spec.verify.matchOIDCIdentity whose signatures count, or name a Secret with public " +
				"keys in spec.verify.secretRef")
	}
	v := &Verifier{public: public}
	for _, id := range identities {
		for _, pattern := range []string{id.Issuer, id.Subject} {
			if _, err := regexp.Compile(pattern); err != nil || pattern == "" {
				return nil, unusable("'%s' in spec.verify.matchOIDCIdentity is no regular expression", pattern).
					Because(err)
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
		return nil, unusable("the trusted root cannot be read").Because(err)
	}
	v.public = nil
	return v, v.trust(material)
}

// trust makes the signers' certificates those of the root. What the root does not name is not asked for, but
// something must prove when a certificate was used, as it is valid for minutes only.
func (v *Verifier) trust(material root.TrustedMaterial) error {
	noLog := len(material.RekorLogs()) == 0
	if noLog && len(material.TimestampingAuthorities()) == 0 || len(material.FulcioCertificateAuthorities()) == 0 {
		return unusable("the trusted root names no certificate authority, or neither a transparency log nor a " +
			"timestamp authority")
	}
	for i := range v.signers {
		c := &v.signers[i].checks
		c.TrustedMaterial = material
		c.IgnoreSCT = len(material.CTLogs()) == 0
		c.IgnoreTlog, c.UseSignedTimestamps = noLog, noLog
	}
	return nil
}

// Verify returns who signed the manifest that the digest names. Errors are faults with the reason VerificationError.
func (v *Verifier) Verify(ctx context.Context, image name.Digest, access ...remote.Option) (string, error) {
	if v.public != nil {
		material, err := v.public.get(ctx)
		if err != nil {
			return "", refused(image, "the trust root of the public Sigstore instance is out of reach").Because(err)
		}
		v = &Verifier{signers: slices.Clone(v.signers)}
		if err := v.trust(material); err != nil {
			return "", err
		}
	}
	digest, err := v1.NewHash(image.DigestStr())
	if err != nil {
		return "", refused(image, "the digest cannot be read").Because(err)
	}
	access = append(slices.Clip(access), remote.WithContext(ctx))
	found, err := candidates(image, access)
	if err != nil {
		return "", refused(image, "its signatures cannot be read").Because(err).After(wait(err))
	}
	if len(found) == 0 {
		return "", refused(image, "it is not signed").
			WithHint("Sign it with cosign sign, and check that the signature is in the same repository")
	}
	var failures []string
	for _, s := range v.signers {
		for _, c := range found {
			err := c.check(ctx, digest, s.checks)
			if err == nil {
				return s.name, nil
			}
			failures = append(failures, fmt.Sprintf("%s is not of %s: %v", c.name, s.name, err))
		}
	}
	return "", refused(image, "no signature is of someone trusted").
		Because(errors.New(strings.Join(failures[:min(len(failures), shownFailures)], "; ")))
}

// checkBundle checks a bundle of cosign 3. Statements of other kinds, such as a list of ingredients, are no
// signatures, even if someone trusted made them.
func checkBundle(ctx context.Context, bundle verify.SignedEntity, digest v1.Hash, checks cosign.CheckOpts) error {
	raw, err := hex.DecodeString(digest.Hex)
	if err != nil {
		return err
	}
	result, err := cosign.VerifyNewBundle(ctx, &checks, verify.WithArtifactDigest(digest.Algorithm, raw), bundle)
	if err != nil {
		return err
	}
	if result.Statement == nil || result.Statement.PredicateType != types.CosignSignPredicateType {
		return errors.New("it is a statement about the artifact, not its signature")
	}
	return nil
}

func unusable(format string, args ...any) *fault.Fault {
	return fault.New(Reason, format, args...).Final()
}

func refused(image name.Digest, why string) *fault.Fault {
	return fault.New(Reason, "cannot verify '%s' with cosign: %s", image.Name(), why)
}
