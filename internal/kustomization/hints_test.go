package kustomization

import (
	"fmt"
	"strings"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/stubsecrets"
)

func TestHintsOfReferences(t *testing.T) {
	_, source := (&Controller{Live: stubsecrets.Reader{}}).source(t.Context(), &kustomizev1.Kustomization{
		Spec: kustomizev1.KustomizationSpec{SourceRef: kustomizev1.SourceReference{Kind: "HelmChart"}}})
	const want = "Use a GitRepository, OCIRepository, Bucket or ExternalArtifact"
	if got := fmt.Sprint(source); !strings.HasSuffix(got, ". "+want) {
		t.Errorf("got %s, want the hint %q", got, want)
	}
}
