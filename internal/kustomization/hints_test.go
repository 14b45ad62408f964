package kustomization

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestHintsOfReferences(t *testing.T) {
	c := &Controller{Live: testenv.Secrets{"broken": {"a.agekey": []byte("no key")}}}
	keys := func(d kustomizev1.Decryption) error {
		_, err := c.readKeys(t.Context(),
			&kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{Decryption: &d}},
			fnv.New64())
		return err
	}
	_, source := c.source(t.Context(), &kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{
		SourceRef: kustomizev1.SourceReference{Kind: "HelmChart"}}})
	for want, err := range map[string]error{
		"Set it to sops": keys(kustomizev1.Decryption{Provider: "vault"}),
		"Create it, or correct spec.decryption.secretRef": keys(kustomizev1.Decryption{Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "none"}}),
		"Replace the value of this entry in the Secret": keys(kustomizev1.Decryption{Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "broken"}}),
		"Use a GitRepository, OCIRepository, Bucket or ExternalArtifact": fmt.Errorf("%s", source),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), ". "+want) {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
