package differential

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// registries returns the URLs of two registries that have no code in common: the one of distribution, which the
// playground runs, and the one of go-containerregistry.
func registries(t *testing.T) map[string]string {
	t.Helper()
	other := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(other.Close)
	return map[string]string{"distribution": ociregistry.New(t).OCI,
		"go-containerregistry": oci.Scheme + strings.TrimPrefix(other.URL, "http://")}
}

// TestRegistriesGiveTheSame runs the same requests against two registries and compares the results.
func TestRegistriesGiveTheSame(t *testing.T) {
	t.Parallel()
	results := map[string][]string{}
	for name, url := range registries(t) {
		results[name] = registryResults(t, url+"/team/app")
		if len(results[name]) < 10 || !slices.ContainsFunc(results[name], func(s string) bool {
			return strings.HasPrefix(s, "1.2.0@sha256:")
		}) {
			t.Errorf("%s: got %q", name, results[name])
		}
	}
	if a, b := results["distribution"], results["go-containerregistry"]; !slices.Equal(a, b) {
		t.Errorf("distribution gives\n%s\ngo-containerregistry gives\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// registryResults pushes artifacts, and returns what the product resolves and reads.
func registryResults(t *testing.T, url string) (results []string) {
	t.Helper()
	at, err := oci.ParseURL(url, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"1.0.0", "1.2.0", "1.10.0-rc.1", "latest", "20240215"} {
		image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer([]byte("content of "+tag),
			"text/plain")})
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(at.Tag(tag), image); err != nil {
			t.Fatal(err)
		}
	}
	if err := remote.Write(at.Tag("3.0.0"), empty.Image); err != nil { // without layers
		t.Fatal(err)
	}
	repository, err := oci.Open(url, oci.Access{Transport: http.DefaultTransport, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	tags, err := repository.Tags(t.Context())
	slices.Sort(tags)
	results = append(results, strings.Join(tags, " "), reasonOf(err))
	for _, ref := range []oci.Reference{{}, {Tag: "1.0.0"}, {Tag: "none"}, {SemVer: "1.x"}, {SemVer: ">=1.0.0-0 <2"},
		{SemVer: ">=4"}, {SemVer: "*", SemverFilter: "^1"}, {SemVer: "3.x"},
		{Digest: "sha256:" + strings.Repeat("0", 64)}} {
		revision, err := repository.Resolve(t.Context(), ref)
		results = append(results, revision.String(), reasonOf(err))
		if err != nil {
			continue
		}
		image, err := repository.Pull(t.Context(), revision.Digest)
		if err != nil {
			t.Fatal(err)
		}
		layer, err := image.Layer("")
		results = append(results, reasonOf(err))
		if err != nil {
			continue
		}
		blob, err := layer.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(blob)
		results = append(results, string(content), reasonOf(err))
		_ = blob.Close()
	}
	return results
}

// reasonOf returns the reason of a fault, empty for no error.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.Reason(err, "no fault")
}
