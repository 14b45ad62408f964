package source

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// trust is what spec.verify of a chart trusts: a keyring for provenance files, or signatures in the registry.
type trust struct {
	keyring    []byte
	signatures access.Verifier
	key        string // changes with what is trusted; empty if nothing is verified
}

// trust reads what spec.verify trusts. If the Secret has a keyring, charts need a provenance file, whichever repository
// they come from.
func (h *HelmChart) trust(ctx context.Context, obj *sourcev1.HelmChart) (trust, error) {
	v := obj.Spec.Verify
	if v == nil {
		return trust{}, nil
	}
	secret, err := h.Secrets.Data(ctx, obj.Namespace, v.SecretRef, "spec.verify.secretRef")
	if err != nil {
		return trust{}, access.NoTrust(err)
	}
	if keyring, ok := secret[helm.KeyringKey]; ok {
		return trust{keyring: keyring, key: access.Fingerprint(v, secret)}, nil
	}
	signatures, key, err := h.Signatures.Verifier(ctx, obj.Namespace, v)
	return trust{signatures: signatures, key: key}, err
}

// verify verifies the package if the object asks for it, and adds the result to f.
func (c *pulledChart) verify(ctx context.Context, obj *sourcev1.HelmChart, data []byte,
	f *Fetched[*sourcev1.HelmChart]) error {
	if c.trusted.key == "" {
		return nil
	}
	signer, err := c.signer(ctx, data)
	if err != nil {
		return unverifiedChart(obj, err, f)
	}
	f.Verification = verified("", "the trust policy requires no signature")
	if signer != "" {
		f.Verification = verified(signer, fmt.Sprintf("verified chart '%s' with version '%s', signed by %s",
			c.offer.Name, c.offer.Version, signer))
	}
	return nil
}

// unverifiedChart adds the failed verification to f, and returns the error of the pass.
func unverifiedChart(obj *sourcev1.HelmChart, err error, f *Fetched[*sourcev1.HelmChart]) error {
	f.Verification = &Verification{Status: metav1.ConditionFalse, Reason: sourcev1.VerificationErrorReason,
		Message: err.Error()}
	failure := fault.New(sourcev1.ChartVerificationErrorReason, "cannot verify chart '%s'", obj.Spec.Chart).Because(err)
	if cause := fault.As(err); cause != nil {
		failure.Terminal, failure.RetryAfter = cause.Terminal, cause.RetryAfter
	}
	return In(sourcev1.BuildFailedCondition, failure)
}

// signer returns the signer of the package; empty if the policy requires no signature.
func (c *pulledChart) signer(ctx context.Context, data []byte) (string, error) {
	if c.trusted.signatures == nil {
		provenance, err := c.repository.Provenance(ctx, c.offer)
		if err != nil {
			return "", err
		}
		key, err := helm.VerifyProvenance(c.trusted.keyring, provenance, c.offer, data, c.charts.Clock.Now())
		return "OpenPGP key " + key, err
	}
	registry, ok := c.repository.(*helm.Registry)
	if !ok {
		return "", fault.New(sourcev1.VerificationErrorReason,
			"charts of a repository over HTTP are verified with an OpenPGP keyring, and spec.verify has none").
			WithHint("Set spec.verify.secretRef to a Secret whose key '%s' has the output of: gpg --export KEY",
				helm.KeyringKey).Final()
	}
	image, options, err := registry.Signed(ctx, c.offer)
	if err != nil {
		return "", err
	}
	return c.trusted.signatures.Verify(ctx, image, options...)
}
