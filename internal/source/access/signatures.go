package access

import (
	"context"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/notation"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// trustedRootKey is the key of the trusted root in its Secret.
const trustedRootKey = "trusted_root.json"

// Signatures makes verifiers for artifacts in registries.
type Signatures struct {
	Connector
	Public *cosign.PublicRoot // for keyless signatures if the object names no trusted root of its own
}

// Verifier verifies signatures of artifacts in a registry.
type Verifier interface {
	// Verify returns the signer of the manifest with the digest; empty if the policy requires no signature.
	Verify(ctx context.Context, image name.Digest, access ...remote.Option) (signer string, err error)
}

// Verifier returns the specified verifier, and a key that changes whenever what it trusts changes.
func (s *Signatures) Verifier(ctx context.Context, namespace string, v *sourcev1.Verification) (Verifier, string,
	error) {
	secret, err := s.Secrets.Data(ctx, namespace, v.SecretRef, "spec.verify.secretRef")
	if err != nil {
		return nil, "", NoTrust(err)
	}
	key := Fingerprint(v, secret)
	switch {
	case v.Provider == "notation":
		if v.SecretRef == nil {
			return nil, "", fault.New(sourcev1.VerificationErrorReason, "notation requires a trust policy").
				WithHint("Set spec.verify.secretRef to a Secret made by 'sluice create secret notation'").Final()
		}
		transport, err := s.Egress.Transport(egress.Options{})
		if err != nil {
			return nil, "", err
		}
		n, err := notation.New(secret, transport)
		return n, key, err
	case v.SecretRef != nil:
		c, err := cosign.Keys(secret)
		return c, key, err
	}
	return s.keyless(ctx, namespace, v)
}

// keyless returns a verifier of signatures by OIDC identities.
func (s *Signatures) keyless(ctx context.Context, namespace string, v *sourcev1.Verification) (Verifier, string,
	error) {
	root, err := s.Secrets.Data(ctx, namespace, v.TrustedRootSecretRef, "spec.verify.trustedRootSecretRef")
	if err != nil {
		return nil, "", NoTrust(err)
	}
	if v.TrustedRootSecretRef != nil && root[trustedRootKey] == nil {
		return nil, "", fault.New(sourcev1.VerificationErrorReason,
			"the Secret of spec.verify.trustedRootSecretRef has no key '%s'", trustedRootKey).
			WithHint("Add the file trusted_root.json of your Sigstore instance").Final()
	}
	var identities []cosign.Identity
	for _, id := range v.MatchOIDCIdentity {
		identities = append(identities, cosign.Identity{Issuer: id.Issuer, Subject: id.Subject})
	}
	c, err := cosign.Keyless(identities, root[trustedRootKey], s.Public)
	return c, Fingerprint(v, root), err
}

// NoTrust explains that the keys, roots or policies that are trusted cannot be read.
func NoTrust(err error) error {
	return fault.New(sourcev1.VerificationErrorReason, "cannot read what spec.verify trusts").Because(err)
}
