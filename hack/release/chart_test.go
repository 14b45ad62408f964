package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
)

// chartRelease returns a release of the chart of this checkout.
func chartRelease(t *testing.T, version string) *release {
	t.Helper()
	images, err := name.NewRepository("registry.example.com/sluice")
	if err != nil {
		t.Fatal(err)
	}
	return &release{options: options{version: version, output: t.TempDir()}, images: images,
		checkout: compile.Source{Dir: "../.."}}
}

func TestChartIsPinnedAndReproducible(t *testing.T) {
	r := chartRelease(t, "v1.2.3")
	image := "sha256:" + strings.Repeat("a", 64)
	var digests []string
	for range 2 {
		if err := r.chart(image); err != nil {
			t.Fatal(err)
		}
		sum, err := digest(filepath.Join(r.output, "sluice-1.2.3.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, sum)
	}
	if digests[0] != digests[1] {
		t.Errorf("two archives differ: %s", digests)
	}
	c, err := loader.LoadFile(filepath.Join(r.output, "sluice-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "v1.2.3" {
		t.Errorf("the chart has version %s of %s", c.Metadata.Version, c.Metadata.AppVersion)
	}
	values, err := commonutil.ToRenderValues(c, map[string]any{}, common.ReleaseOptions{Name: "sluice",
		Namespace: "flux-system"}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	want := `image: "registry.example.com/sluice:v1.2.3@` + image + `"`
	if got := rendered["sluice/templates/deployment.yaml"]; !strings.Contains(got, want) {
		t.Errorf("the Deployment lacks %s:\n%s", want, got)
	}
}

func TestChartNeedsSemanticVersion(t *testing.T) {
	if err := chartRelease(t, "nightly").chart("sha256:0"); err == nil || !strings.Contains(err.Error(), "nightly") {
		t.Errorf("got %v", err)
	}
}
