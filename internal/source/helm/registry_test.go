package helm

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// chartRegistry is a registry that requires a login and records requests.
type chartRegistry struct {
	*httptest.Server
	host string

	mu   sync.Mutex
	seen []string
}

func newChartRegistry(t *testing.T) *chartRegistry {
	r := &chartRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if u, p, _ := req.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.mu.Lock()
		r.seen = append(r.seen, req.Method+" "+req.URL.Path)
		r.mu.Unlock()
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(r.Close)
	r.host = strings.TrimPrefix(r.URL, "http://")
	return r
}

// requests returns the requests since the last call, except those for the version of the API.
func (r *chartRegistry) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := slices.DeleteFunc(r.seen, func(s string) bool { return s == "GET /v2/" })
	r.seen = nil
	return seen
}

var login = authn.AuthConfig{Username: user, Password: password}

// client returns a client that reuses the repositories that it opens.
func (r *chartRegistry) client(as authn.AuthConfig) *Registry {
	kept := map[string]*oci.Repository{}
	return &Registry{URL: "oci://" + r.host + "/charts", Limits: DefaultLimits,
		Open: func(_ context.Context, url string) (*oci.Repository, error) {
			if kept[url] != nil {
				return kept[url], nil
			}
			repository, err := oci.Open(url, oci.Access{Transport: http.DefaultTransport, Login: as, Insecure: true})
			kept[url] = repository
			return repository, err
		}}
}

// push pushes an artifact with layers like Helm.
func (r *chartRegistry) push(t *testing.T, chart, version string, layers ...v1.Layer) name.Digest {
	t.Helper()
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.cncf.helm.config.v1+json")
	for _, l := range layers {
		var err error
		if image, err = mutate.Append(image, mutate.Addendum{Layer: l}); err != nil {
			t.Fatal(err)
		}
	}
	tag, err := name.NewTag(r.host+"/charts/"+chart+":"+strings.ReplaceAll(version, "+", "_"), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image, remote.WithAuth(authn.FromConfig(login))); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return tag.Digest(digest.String())
}

func (r *chartRegistry) publish(t *testing.T, name, version string) name.Digest {
	return r.push(t, name, version, static.NewLayer(packaged(t, newChart(path.Base(name), version)), chartLayer))
}

func TestRegistry(t *testing.T) {
	r := newChartRegistry(t)
	for _, v := range []string{"1.0.0", "1.1.0+build.1", "2.0.0-rc.1", "latest"} {
		if v == "latest" {
			r.push(t, "app", v)
			continue
		}
		r.publish(t, "app", v)
	}
	c := r.client(login)
	for constraint, want := range map[string]string{"": "1.1.0+build.1", "1.0.x": "1.0.0", ">=2-0": "2.0.0-rc.1",
		"1.1.0": "1.1.0+build.1"} {
		o, err := c.Find(t.Context(), "app", constraint)
		if err != nil || o.Version != want {
			t.Fatalf("%q: %+v, %v", constraint, o, err)
		}
		data, err := c.Pull(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := Repackage(t.Context(), o, data, Options{Limits: DefaultLimits}); err != nil || p.Version != want {
			t.Fatal(p, err)
		}
	}

	r.publish(t, "team/app", "1.0.0")
	o, err := c.Find(t.Context(), "team/app", "1.x")
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Pull(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Repackage(t.Context(), o, data, Options{Limits: DefaultLimits}); err != nil || p.Name != "app" {
		t.Fatal("chart with a path: ", p, err)
	}

	r.requests()
	if _, err := c.Find(t.Context(), "app", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	if got := r.requests(); !slices.Equal(got, []string{"HEAD /v2/charts/app/manifests/1.0.0"}) {
		t.Errorf("requests for an exact version: %q", got)
	}

	_, err = c.Find(t.Context(), "app", "3.x")
	requireFault(t, err, "InvalidChartReference", `matches "3.x"`)
	_, err = c.Find(t.Context(), "other", "*")
	requireFault(t, err, "InvalidChartReference", "NAME_UNKNOWN: Unknown name. Check the URL and the reference")
	_, err = c.Find(t.Context(), "../app", "*")
	requireFault(t, err, "URLInvalid")
	_, err = c.Find(t.Context(), "app", "x y")
	requireFault(t, err, "InvalidChartReference", "neither a version nor a range")
	_, err = r.client(authn.AuthConfig{Username: user, Password: "s3cret"}).Find(t.Context(), "app", "*")
	requireFault(t, err, "AuthenticationFailed", "401")
}

func TestRegistryRefuses(t *testing.T) {
	r := newChartRegistry(t)
	c := r.client(login)
	for _, test := range []struct {
		version, want string
		layers        []v1.Layer
	}{
		{version: "1.0.0", want: "no layer of type 'application/vnd.cncf.helm.chart.content.v1.tar+gzip'. " +
			"Check that the reference is a chart, and push it with helm " +
			"push", layers: []v1.Layer{static.NewLayer([]byte("x"), "text/plain")}},
		{version: "1.0.1", want: "has no layers, so there is nothing to apply. " +
			"Check that the reference is a chart, and push it with helm push", layers: nil},
		{version: "1.0.2", want: "exceeds 100",
			layers: []v1.Layer{static.NewLayer([]byte(strings.Repeat("x", 200)), chartLayer)}},
	} {
		r.push(t, "app", test.version, test.layers...)
		o, err := c.Find(t.Context(), "app", test.version)
		if err != nil {
			t.Fatal(err)
		}
		c.Limits.Chart = 100
		_, err = c.Pull(t.Context(), o)
		requireFault(t, err, "ChartPullError", test.want)
		_, err = c.Provenance(t.Context(), o)
		requireFault(t, err, "ChartPullError", "has no layer")
	}
}
