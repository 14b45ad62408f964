package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// ChartSignatures verifies charts as spec.verify says: by provenance if the Secret has a keyring, else by the provider.
type ChartSignatures struct {
	Secrets  Secrets
	Registry *Signatures // of charts in registries
	Clock    clock.PassiveClock
}

// policy tells one state of what is trusted from the next; it is empty when nothing is verified.
func (s *ChartSignatures) policy(ctx context.Context, obj *sourcev1.HelmChart) (string, error) {
	if obj.Spec.Verify == nil {
		reconcile.Unmark(obj, sourcev1.SourceVerifiedCondition)
		return "", nil
	}
	trusted, root, err := s.secrets(ctx, obj)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{obj.Spec.Verify, trusted, root})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

func (s *ChartSignatures) secrets(ctx context.Context, obj *sourcev1.HelmChart) (trusted, root map[string][]byte, err error) {
	v := obj.Spec.Verify
	if trusted, err = s.Secrets.Data(ctx, obj.Namespace, v.SecretRef, "spec.verify.secretRef"); err != nil {
		return nil, nil, err
	}
	root, err = s.Secrets.Data(ctx, obj.Namespace, v.TrustedRootSecretRef, "spec.verify.trustedRootSecretRef")
	return trusted, root, err
}

// verify checks the chart and says so in the condition SourceVerified.
func (s *ChartSignatures) verify(ctx context.Context, obj *sourcev1.HelmChart, repository helm.Repository, offer helm.Offer, data []byte) error {
	if obj.Spec.Verify == nil {
		return nil
	}
	by, err := s.signer(ctx, obj, repository, offer, data)
	if err != nil {
		reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionFalse, sourcev1.VerificationErrorReason, err.Error())
		f := fault.New(sourcev1.ChartVerificationErrorReason, "chart '%s' %s is not verified", offer.Name, offer.Version).Because(err)
		if cause := fault.As(err); cause != nil {
			f.Terminal, f.RetryAfter = cause.Terminal, cause.RetryAfter
		}
		return f
	}
	reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionTrue, meta.SucceededReason,
		fmt.Sprintf("verified chart '%s' with version '%s', signed by %s", offer.Name, offer.Version, by))
	return nil
}

// signer returns who signed the chart.
func (s *ChartSignatures) signer(ctx context.Context, obj *sourcev1.HelmChart, repository helm.Repository, offer helm.Offer, data []byte) (string, error) {
	trusted, _, err := s.secrets(ctx, obj)
	if err != nil {
		return "", err
	}
	if keyring, ok := trusted[helm.KeyringKey]; ok {
		prov, err := repository.Provenance(ctx, offer)
		if err != nil {
			return "", err
		}
		key, err := helm.VerifyProvenance(keyring, prov, offer, data, s.Clock.Now())
		return "OpenPGP key " + key, err
	}
	registry, ok := repository.(*helm.Registry)
	if !ok {
		return "", fault.New(sourcev1.VerificationErrorReason, "charts of a repository over HTTP are signed by provenance files, and the Secret of spec.verify.secretRef has no keyring").
			WithHint("Add the key %s to it, made by: gpg --export KEY", helm.KeyringKey).Final()
	}
	image, err := registry.Image(offer)
	if err != nil {
		return "", err
	}
	v, _, err := s.Registry.verifier(ctx, obj.Namespace, obj.Spec.Verify)
	if err != nil {
		return "", err
	}
	return v.Verify(ctx, image, registry.Access(ctx)...)
}
