package oci

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"oci://ghcr.io/team/app":             "ghcr.io/team/app",
		"oci://registry/app":                 "registry/app",
		"oci://127.0.0.1:5000/a/b/c":         "127.0.0.1:5000/a/b/c",
		"oci://docker.io/library/alpine":     "index.docker.io/library/alpine",
		"oci://ghcr.io/team/app:v1":          "",
		"oci://ghcr.io/team/app@sha256:0":    "",
		"oci://ghcr.io/":                     "",
		"oci://ghcr.io":                      "",
		"oci:///app":                         "",
		"oci://me:secret@ghcr.io/app":        "",
		"oci://ghcr.io/app?tag=v1":           "",
		"https://ghcr.io/team/app":           "",
		"oci://ghcr.io/../secret":            "",
		"oci://ghcr.io/a%2f..%2fb":           "",
		"oci://%zz/a":                        "",
		"oci://ghcr.io/Team/App":             "",
		"oci://[::1]:5000/app":               "[::1]:5000/app",
		"oci://169.254.169.254:99999999/app": "",
	} {
		got, err := ParseURL(raw, false)
		if err != nil {
			requireFault(t, err, "URLInvalid", "Write it as oci://host/path, without a tag")
			if strings.Contains(err.Error(), "secret@") {
				t.Errorf("%s: the error contains the password", raw)
			}
		}
		if (want == "") != (err != nil) || err == nil && got.Name() != want {
			t.Errorf("%s: got %s and %v, want %q", raw, got, err, want)
		}
	}
}

func TestResolveChecksTheLogin(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t, "--tls-dir", t.TempDir(), "--client-certificates", "--username", "me", "--password",
		"secret")
	push(t, r, "app", "latest", nil, static.NewLayer([]byte("a"), contentType))
	anonymous := r.Transport()
	anonymous.TLSClientConfig.Certificates = nil
	for name, c := range map[string]struct {
		a       Access
		reason  string
		message string
	}{
		"login and certificate": {a: Access{Transport: r.Transport(),
			Login: authn.AuthConfig{Username: "me", Password: "secret"}}, reason: "", message: ""},
		"no login": {a: Access{Transport: r.Transport()}, reason: "AuthenticationFailed",
			message: "No login is set: set spec.secretRef, or spec.provider for a cloud, unless the repository " +
				"does not exist"},
		"wrong login": {a: Access{Transport: r.Transport(),
			Login: authn.AuthConfig{Username: "me", Password: "wrong"}}, reason: "AuthenticationFailed",
			message: "Check the login and its permissions. Some registries return this status for missing " +
				"repositories"},
		"no client certificate": {a: Access{Transport: anonymous,
			Login: authn.AuthConfig{Username: "me", Password: "secret"}}, reason: "OCIArtifactPullFailed",
			message: "certificate required"},
		"unknown certificate authority": {a: Access{Transport: http.DefaultTransport,
			Login: authn.AuthConfig{Username: "me", Password: "secret"}}, reason: "OCIArtifactPullFailed",
			message: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			repo, err := Open(r.OCI+"/app", c.a)
			if err != nil {
				t.Fatal(err)
			}
			_, err = repo.Resolve(t.Context(), Reference{})
			if c.reason == "" && err == nil {
				return
			}
			requireFault(t, err, c.reason, c.message)
			if secret := base64.StdEncoding.EncodeToString([]byte("me:secret")); strings.Contains(err.Error(),
				secret) || strings.Contains(err.Error(), ":secret") {
				t.Errorf("the error contains the login: %v", err)
			}
		})
	}
}

// A registry without TLS is refused, except a loopback host that the transport may reach.
func TestPlainHTTPIsRefused(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	push(t, r, "app", "latest", nil, static.NewLayer([]byte("a"), contentType))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.OCI, Scheme))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := r.Transport() // every name leads to the registry
	elsewhere.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	}
	guarded, err := (&egress.Policy{RefuseLoopback: true}).Transport(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		host      string
		transport http.RoundTripper
		allowed   bool
	}{
		"loopback address":         {host: "127.0.0.1:", transport: r.Transport(), allowed: true},
		"localhost":                {host: "localhost:", transport: elsewhere, allowed: true},
		"loopback address of IPv6": {host: "[::1]:", transport: elsewhere, allowed: true},
		"refused by egress":        {host: "127.0.0.1:", transport: guarded},
		"other host":               {host: "registry.example:", transport: elsewhere},
		"private address":          {host: "10.1.2.3:", transport: elsewhere},
	} {
		repo, err := Open(Scheme+c.host+port+"/app", Access{Transport: c.transport})
		if err != nil {
			t.Fatal(err)
		}
		before := r.Stats()["HEAD manifests"]
		_, err = repo.Resolve(t.Context(), Reference{})
		if after := r.Stats()["HEAD manifests"]; c.allowed != (err == nil) || c.allowed != (after > before) {
			t.Errorf("%s: got %v after %d requests, want allowed %v", name, err, after-before, c.allowed)
		}

	}
}

// TestResponsesAreBounded checks endless responses.
func TestResponsesAreBounded(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"endless manifest": func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "manifests") {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				forever(w)
			}
		},
		"endless list of tags": func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "tags") {
				_, _ = io.WriteString(w, `{"tags":["`)
				forever(w)
			}
		},
		"endless pages of tags": func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "tags") {
				w.Header().Set("Link", `</v2/app/tags/list?n=1000>; rel="next"`)
				_, _ = io.WriteString(w, `{"tags":[`+strings.Repeat(`"1.0.0",`, 9999)+`"1.0.0"]}`)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			repo, err := Open(strings.Replace(server.URL, "http", "oci", 1)+"/app",
				Access{Transport: http.DefaultTransport, Insecure: true})
			if err != nil {
				t.Fatal(err)
			}
			ref := Reference{SemVer: "*"}
			if strings.Contains(name, "manifest") {
				_, err = repo.Pull(t.Context(), v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)})
			} else {
				_, err = repo.Resolve(t.Context(), ref)
			}
			if f := fault.As(err); f == nil || strings.Contains(name, "pages") &&
				f.Hint != "Use one tag or version instead of a range of versions" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// forever writes until the client closes the connection.
func forever(w io.Writer) {
	chunk := bytes.Repeat([]byte("a"), 1<<20)
	for err := error(nil); err == nil; {
		_, err = w.Write(chunk)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"oci://ghcr.io/team/app", "oci://[::1]:5000/a", "oci://a/b:c", "oci://a@b/c?d#e",
		"https://a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		repo, err := ParseURL(raw, false)
		if err != nil {
			return
		}
		again, err := ParseURL(Scheme+repo.Name(), false)
		if err != nil || again.Name() != repo.Name() || strings.ContainsAny(repo.Name(), "@?# \\%") ||
			strings.Contains(repo.Name(), "..") {
			t.Errorf("%q became %q, and that %q (%v)", raw, repo.Name(), again.Name(), err)
		}
	})
}

func FuzzHighest(f *testing.F) {
	f.Add("1.0.0 v2 latest", ">=1", "")
	f.Add("1.0.0-dev", ">=1-0", "-dev$")
	f.Fuzz(func(t *testing.T, tags, versions, filter string) {
		all := strings.Fields(tags)
		got, err := Reference{SemVer: versions, SemverFilter: filter}.highest(all)
		if err == nil && !slices.Contains(all, got) {
			t.Errorf("%q is not one of %q", got, all)
		}
		if err != nil && fault.As(err) == nil {
			t.Errorf("%v is not a fault", err)
		}
	})
}
