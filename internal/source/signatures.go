package source

import (
	"context"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/verify/notation"
)

// trustedRootKey is the entry of the Secret with a trust root.
const trustedRootKey = "trusted_root.json"

// Signatures makes verifiers of artifacts in registries, as objects declare them.
type Signatures struct {
	Connector
	Public *cosign.PublicRoot // of keyless signatures without an own root
}

// verifier checks signatures of artifacts in a registry.
type verifier interface {
	// Verify returns who signed the manifest that the digest names; nobody if the policy asks for no signature.
	Verify(ctx context.Context, image name.Digest, access ...remote.Option) (string, error)
}

// verifier returns the one that is declared, and a key that differs when what it trusts does.
func (s *Signatures) verifier(ctx context.Context, namespace string, v *sourcev1.Verification) (verifier, string,
	error) {
	secret, err := s.Secrets.Data(ctx, namespace, v.SecretRef, "spec.verify.secretRef")
	if err != nil {
		return nil, "", untrusted(err)
	}
	key := fingerprint(v, secret)
	switch {
	case v.Provider == "notation":
		if v.SecretRef == nil {
			return nil, "", fault.New(sourcev1.VerificationErrorReason, "notation needs a trust policy").
				WithHint("Name a Secret in spec.verify.secretRef; sluice create secret notation makes one").Final()
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
	root, err := s.Secrets.Data(ctx, namespace, v.TrustedRootSecretRef, "spec.verify.trustedRootSecretRef")
	if err != nil {
		return nil, "", untrusted(err)
	}
	if v.TrustedRootSecretRef != nil && root[trustedRootKey] == nil {
		return nil, "", fault.New(sourcev1.VerificationErrorReason,
			"the Secret of spec.verify.trustedRootSecretRef has no key %s", trustedRootKey).
			WithHint("Add the trusted root of your Sigstore").Final()
	}
	var identities []cosign.Identity
	for _, id := range v.MatchOIDCIdentity {
		identities = append(identities, cosign.Identity{Issuer: id.Issuer, Subject: id.Subject})
	}
	c, err := cosign.Keyless(identities, root[trustedRootKey], s.Public)
	return c, fingerprint(v, root), err
}

func untrusted(err error) error {
	return fault.New(sourcev1.VerificationErrorReason, "there is nothing to verify by").Because(err)
}
