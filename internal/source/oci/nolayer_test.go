package oci

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// TestArtifactWithoutLayers checks the message about an artifact that has nothing to apply, for each layer selector.
func TestArtifactWithoutLayers(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	digest := push(t, r, "app", "1.0.0", nil)
	image, err := open(t, r, "app").Pull(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, mediaType := range []string{"", "text/plain", ChartLayer} {
		_, err = image.Layer(mediaType)
		requireFault(t, err, "OCIArtifactLayerOperationFailed", "has no layers, so there is nothing to apply. "+
			"Push the files as its first layer, for example with 'sluice push artifact'")
	}
	other := push(t, r, "app", "2.0.0", nil, static.NewLayer([]byte("a"), contentType))
	if image, err = open(t, r, "app").Pull(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	_, err = image.Layer("text/other")
	requireFault(t, err, "OCIArtifactLayerOperationFailed", "has no layer of type 'text/other'")
}
