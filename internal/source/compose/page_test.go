package compose

import (
	"testing"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestMetadataOfPage reads the file of docs/artifactgenerator.md.
func TestMetadataOfPage(t *testing.T) {
	blocks := testenv.Blocks(t, "artifactgenerator.md", "yml")
	if len(blocks) != 1 {
		t.Fatalf("the page has %d files", len(blocks))
	}
	trees := map[string]*artifact.Tree{"src": artifact.FromMap(map[string]string{"ns.yaml": blocks[0]})}
	allowed := extensionsv1beta1.NamespaceMetadataFile{AllowedLabels: map[string]string{"tier": "^(gold|silver)$"}}
	m, err := NamespaceMetadata(Output{Metadata: "@src/ns.yaml"}, allowed, trees)
	if err != nil || m.Labels["tier"] != "gold" {
		t.Errorf("%+v, %v", m, err)
	}
}
