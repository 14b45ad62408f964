package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

func ArtifactOutput(name, from string) extensionsv1beta1.OutputArtifact {
	alias, _, _ := strings.Cut(from, "/")
	return extensionsv1beta1.OutputArtifact{Name: name, OriginRevision: alias,
		Copy: []extensionsv1beta1.CopyOperation{{From: from, To: "@artifact/"}}}
}

// Archive makes a .tar.gz by way of a store of its own.
func Archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	store, err := artifact.OpenStore(dir, "x", artifact.Retention{TTL: time.Minute, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Put(t.Context(), artifact.Key{Kind: "X", Namespace: "x", Name: "x"}, artifact.FromMap(files),
		"v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, a.Path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
