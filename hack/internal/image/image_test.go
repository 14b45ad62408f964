package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	intoto "github.com/in-toto/attestation/go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
	"github.com/sluice-gitops/sluice/hack/internal/compile/compiletest"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// build compiles a source for some architectures of Linux and returns its image.
func build(t *testing.T, source compile.Source, architectures ...string) *Image {
	t.Helper()
	var binaries []Binary
	for _, arch := range architectures {
		b := Binary{Target: compile.Target{OS: "linux", Arch: arch}, File: filepath.Join(t.TempDir(), arch)}
		if err := source.Binary(t.Context(), b.Target, b.File); err != nil {
			t.Fatal(err)
		}
		binaries = append(binaries, b)
	}
	i, err := New(t.Context(), source, binaries)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestBuildIsReproducible(t *testing.T) {
	var indexes []string
	for range 2 {
		source := compiletest.Checkout(t) // in another directory
		t.Setenv("GOFLAGS", "-ldflags=-w")
		dir := filepath.Join(t.TempDir(), "image")
		if err := build(t, source, "amd64", "arm64").Write(dir); err != nil {
			t.Fatal(err)
		}
		index, err := os.ReadFile(filepath.Join(dir, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		indexes = append(indexes, string(index))
	}
	if indexes[0] != indexes[1] {
		t.Errorf("two builds differ:\n%s\n%s", indexes[0], indexes[1])
	}
}

func TestLayoutIsValid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	built := build(t, compiletest.Checkout(t), "amd64", "arm64")
	if err := built.Write(dir); err != nil {
		t.Fatal(err)
	}
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 5 || manifest.Manifests[0].Digest != built.Digest {
		t.Fatalf("the layout has %d manifests: %+v", n, manifest.Manifests)
	}
	index, err := root.ImageIndex(built.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	platforms, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range platforms.Manifests {
		image, err := index.Image(p.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != p.Platform.Architecture || config.Config.User != "65534:65534" ||
			config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
			t.Errorf("config of %s: %+v", p.Platform, config)
		}
	}
}

func TestAuthoritiesAreCertificates(t *testing.T) {
	roots, err := authorities()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) || bytes.Count(roots, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("the image trusts %d authorities", bytes.Count(roots, []byte("BEGIN CERTIFICATE")))
	}
}

func TestDocumentsDescribeTheImage(t *testing.T) {
	built := build(t, compiletest.Checkout(t), "amd64")
	manifest, err := built.index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	platform := manifest.Manifests[0].Digest
	bill, err := spdxjson.Read(bytes.NewReader(built.referrers[0].content))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(bill); err != nil {
		t.Error(err)
	}
	if sum := bill.Packages[0].PackageChecksums[0].Value; sum != platform.Hex {
		t.Errorf("the SBOM is about %s, the image is %s", sum, platform.Hex)
	}
	if p := bill.Packages[1]; p.PackageName != "stdlib" || "go"+p.PackageVersion != runtime.Version() {
		t.Errorf("the SBOM names %s %s", p.PackageName, p.PackageVersion)
	}
	statement := &intoto.Statement{}
	if err := protojson.Unmarshal(built.referrers[1].content, statement); err != nil {
		t.Fatal(err)
	}
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	if got := statement.Subject[0].Digest["sha256"]; got != platform.Hex {
		t.Errorf("the provenance is about %s", got)
	}
	definition := statement.Predicate.AsMap()["buildDefinition"].(map[string]any)
	if got := definition["externalParameters"].(map[string]any)["version"]; got != "v1.2.3" {
		t.Errorf("the provenance has version %v", got)
	}
}

func TestBuilderIsTheWorkflow(t *testing.T) {
	env := map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_RUN_ID": "7",
		"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/release.yaml@refs/tags/v1.2.3", "GITHUB_REPOSITORY": "o/r",
		"GITHUB_RUN_ATTEMPT": "1"}
	builder, invocation := builderOf(func(key string) string { return env[key] })
	if builder != "https://github.com/o/r/.github/workflows/release.yaml@refs/tags/v1.2.3" ||
		invocation != "https://github.com/o/r/actions/runs/7/attempts/1" {
		t.Errorf("builder %s, invocation %s", builder, invocation)
	}
	if builder, _ := builderOf(func(string) string { return "" }); builder != localBuilder {
		t.Errorf("builder %s", builder)
	}
}

// TestPushedImageRuns pushes an image with the product's binary, pulls it and runs the binary.
func TestPushedImageRuns(t *testing.T) {
	binary, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	source := compiletest.Checkout(t)
	target := compile.Target{OS: "linux", Arch: runtime.GOARCH}
	built, err := New(t.Context(), source, []Binary{{Target: target, File: binary}})
	if err != nil {
		t.Fatal(err)
	}
	registry := ociregistry.New(t)
	repo, err := name.NewRepository(registry.Host+"/sluice", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := built.Push(t.Context(), repo, registry.Access()...); err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(repo.Tag("v1.2.3"), append(registry.Access(),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(extract(t, image), "version", "--client").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "sluice: ") {
		t.Errorf("the pulled binary printed %q: %v", out, err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(repo.Digest(digest.String()), registry.Access()...)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 {
		t.Errorf("%d artifacts refer to the image", len(manifest.Manifests))
	}
	refuseOther(t, repo, registry)
}

// refuseOther checks that the tag of a release is not moved.
func refuseOther(t *testing.T, repo name.Repository, registry *ociregistry.Server) {
	t.Helper()
	other := build(t, compiletest.Checkout(t), "amd64")
	if err := other.Push(context.Background(), repo, registry.Access()...); err == nil ||
		!strings.Contains(err.Error(), "exists with another digest") {
		t.Errorf("the tag of a release was moved: %v", err)
	}
}

// extract writes the binary of an image to a file.
func extract(t *testing.T, image v1.Image) string {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != binaryPath {
			continue
		}
		file := filepath.Join(t.TempDir(), "sluice")
		content, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(file, content, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
}

func TestReferrerNamesItsType(t *testing.T) {
	var manifest struct{ ArtifactType string }
	for _, r := range build(t, compiletest.Checkout(t), "amd64").referrers {
		if err := json.Unmarshal(r.manifest, &manifest); err != nil || manifest.ArtifactType != r.kind {
			t.Errorf("the manifest of %s has the type %q: %v", r.kind, manifest.ArtifactType, err)
		}
	}
}
