package source

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// trust is what spec.verify of a chart says: a keyring for provenance files, or signatures in the registry.
type trust struct {
	keyring    []byte
	signatures access.Verifier
	key        string // differs when what is trusted does; empty when nothing is verified
}

// trust reads what is trusted. Where the Secret has a keyring, charts must come with a provenance file, from
// whichever repository.
func (h *HelmChart) trust(ctx context.Context, obj *sourcev1.HelmChart) (trust, error) {
	v := obj.Spec.Verify
	if v == nil {
		reconcile.Unmark(obj, sourcev1.SourceVerifiedCondition)
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

// verify checks the chart, and says so in the condition SourceVerified.
func (h *HelmChart) verify(ctx context.Context, obj *sourcev1.HelmChart, t trust, repository helm.Repository,
	o helm.Offer, data []byte) error {
	if t.key == "" {
		return nil
	}
	by, err := h.signer(ctx, t, repository, o, data)
	if err != nil {
		return unverified(obj, err)
	}
	message := fmt.Sprintf("verified chart '%s' with version '%s', signed by %s", o.Name, o.Version, by)
	if by == "" {
		message = "the trust policy asks for no signature"
	}
	reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	return nil
}

// unverified says in the condition SourceVerified why nobody vouches for the chart.
func unverified(obj *sourcev1.HelmChart, err error) error {
	reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionFalse, sourcev1.VerificationErrorReason,
		err.Error())
	f := fault.New(sourcev1.ChartVerificationErrorReason, "chart '%s' is not verified", obj.Spec.Chart).Because(err)
	if cause := fault.As(err); cause != nil {
		f.Terminal, f.RetryAfter = cause.Terminal, cause.RetryAfter
	}
	return In(sourcev1.BuildFailedCondition, f)
}

// signer returns who signed the chart.
func (h *HelmChart) signer(ctx context.Context, t trust, repository helm.Repository, o helm.Offer, data []byte) (string,
	error) {
	if t.signatures == nil {
		prov, err := repository.Provenance(ctx, o)
		if err != nil {
			return "", err
		}
		key, err := helm.VerifyProvenance(t.keyring, prov, o, data, h.Clock.Now())
		return "OpenPGP key " + key, err
	}
	registry, ok := repository.(*helm.Registry)
	if !ok {
		return "", fault.New(sourcev1.VerificationErrorReason,
			"charts of a repository over HTTP are signed by provenance files, and the Secret of "+
				"spec.verify.secretRef has no keyring").
			WithHint("Add the key %s to it, made by: gpg --export KEY", helm.KeyringKey).Final()
	}
	image, access, err := registry.Signed(ctx, o)
	if err != nil {
		return "", err
	}
	return t.signatures.Verify(ctx, image, access...)
}
