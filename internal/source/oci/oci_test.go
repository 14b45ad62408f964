package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	contentType = types.MediaType("application/vnd.cncf.flux.content.v1.tar+gzip")
	chartType   = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// archive makes a .tar.gz of headers, each with the content that stands beside it.
func archive(t testing.TB, files map[string]string, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg})
		_, writeErr := io.WriteString(w, files[name])
		if err := errors.Join(err, writeErr); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range more {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// push pushes an artifact and returns its digest.
func push(t testing.TB, r *testenv.Registry, repo, tag string, annotations map[string]string, layers ...v1.Layer) v1.Hash {
	t.Helper()
	digest, err := v1.NewHash(r.Push(repo, tag, annotations, layers...).DigestStr())
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func open(t testing.TB, r *testenv.Registry, repo string) *Repository {
	t.Helper()
	opened, err := Open(r.OCI+"/"+repo, Access{Transport: r.Transport(), Insecure: r.CA == nil})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// wants checks that the error is a fault of a reason that says a text.
func wants(t *testing.T, err error, reason, says string) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Reason != reason || !strings.Contains(err.Error(), says) {
		t.Fatalf("got %v, want %s that says %q", err, reason, says)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	digests := map[string]v1.Hash{}
	for _, tag := range []string{"latest", "1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1", "v1.3.0-prod", "1.9.0-dev", "nightly"} {
		digests[tag] = push(t, r, "team/app", tag, nil, static.NewLayer([]byte(tag), contentType))
	}
	for what, c := range map[string]struct {
		ref  Reference
		want string // tag
	}{
		"the tag latest without a reference":      {Reference{}, "latest"},
		"a tag":                                   {Reference{Tag: "nightly"}, "nightly"},
		"the highest version, not the last word":  {Reference{SemVer: "1.x"}, "1.10.0"},
		"a range goes before a tag":               {Reference{SemVer: "<1.2", Tag: "nightly"}, "1.0.0"},
		"before a release only if the range says": {Reference{SemVer: ">=1.0.0-0"}, "2.0.0-rc.1"},
		"a filter":                {Reference{SemVer: ">=1.0.0-0", SemverFilter: ".*-prod$"}, "v1.3.0-prod"},
		"a filter of another set": {Reference{SemVer: ">=1.0.0-0", SemverFilter: "-dev$"}, "1.9.0-dev"},
	} {
		t.Run(what, func(t *testing.T) {
			got, err := open(t, r, "team/app").Resolve(t.Context(), c.ref)
			if err != nil || got.String() != c.want+"@"+digests[c.want].String() {
				t.Errorf("got %v and %v, want %s", got, err, c.want)
			}
		})
	}
	t.Run("a digest goes before all", func(t *testing.T) {
		d := digests["1.0.0"]
		got, err := open(t, r, "team/app").Resolve(t.Context(), Reference{Digest: d.String(), SemVer: "*", Tag: "nightly"})
		if err != nil || got.String() != d.String() {
			t.Errorf("got %v and %v", got, err)
		}
	})
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	push(t, r, "app", "1.0.0", nil, static.NewLayer([]byte("a"), contentType))
	for what, c := range map[string]struct {
		repo   string
		ref    Reference
		reason string
		says   string
	}{
		"a tag that is not there":       {"app", Reference{Tag: "none"}, "OCIArtifactPullFailed", "Check the URL and the reference"},
		"a repository that is not":      {"none", Reference{SemVer: "*"}, "OCIArtifactPullFailed", "cannot list the tags"},
		"a digest that is not there":    {"app", Reference{Digest: "sha256:" + strings.Repeat("0", 64)}, "OCIArtifactPullFailed", "cannot find"},
		"a digest that is none":         {"app", Reference{Digest: "sha256:0"}, "URLInvalid", "spec.ref.digest"},
		"a range that is none":          {"app", Reference{SemVer: "one"}, "InvalidSemver", "spec.ref.semver"},
		"a filter that is none":         {"app", Reference{SemVer: "*", SemverFilter: "("}, "InvalidSemver", "spec.ref.semverFilter"},
		"a range without a tag":         {"app", Reference{SemVer: ">1"}, "OCIArtifactPullFailed", "no tag of 1 is a version"},
		"a tag that leads elsewhere":    {"app", Reference{Tag: "../../other/manifests/1.0.0"}, "URLInvalid", "is no tag"},
		"a tag that is a digest's part": {"app", Reference{Tag: "1.0.0@sha256:0"}, "URLInvalid", "is no tag"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := open(t, r, c.repo).Resolve(t.Context(), c.ref)
			wants(t, err, c.reason, c.says)
		})
	}
}

// TestUnchangedCostsOneHead checks what a repository that is kept asks for.
func TestUnchangedCostsOneHead(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	push(t, r, "app", "latest", nil, static.NewLayer([]byte("a"), contentType))
	kept := open(t, r, "app")
	if _, err := kept.Resolve(t.Context(), Reference{}); err != nil {
		t.Fatal(err)
	}
	before := r.Stats()
	if _, err := kept.Resolve(t.Context(), Reference{}); err != nil {
		t.Fatal(err)
	}
	after := r.Stats()
	if after["requests"]-before["requests"] != 1 || after["HEAD manifests"]-before["HEAD manifests"] != 1 {
		t.Errorf("want one HEAD, got %v after %v", after, before)
	}
}

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
			wants(t, err, "URLInvalid", "oci://host/path")
			if strings.Contains(err.Error(), "secret@") {
				t.Errorf("%s: the error tells the password", raw)
			}
		}
		if (want == "") != (err != nil) || err == nil && got.Name() != want {
			t.Errorf("%s: got %s and %v, want %q", raw, got, err, want)
		}
	}
}

func TestPull(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	annotations := map[string]string{RevisionAnnotation: "main@sha1:0", SourceAnnotation: "https://git.example/app"}
	content := archive(t, map[string]string{
		"deploy.yaml": "a: 1\n", "dir/b": "2", "dir/.sourceignore": "*.tmp\n", "dir/c.tmp": "3", "pic.jpg": "4", "not.tmp": "5",
	})
	chart := archive(t, map[string]string{"app/Chart.yaml": "name: app\n"})
	digest := push(t, r, "app", "v1", annotations, static.NewLayer(content, contentType), static.NewLayer(chart, chartType))
	repo := open(t, r, "app")
	image, err := repo.Pull(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(annotations, image.Annotations); diff != "" {
		t.Error(diff)
	}
	none, other := "", "dir\n"
	for what, c := range map[string]struct {
		mediaType types.MediaType
		spec      *string
		want      []string
	}{
		"the first layer without what is excluded by default": {"", nil, []string{"deploy.yaml", "dir/.sourceignore", "dir/b", "not.tmp"}},
		"rules in the place of the default":                   {"", &none, []string{"deploy.yaml", "dir/.sourceignore", "dir/b", "not.tmp", "pic.jpg"}},
		"rules that leave out a directory":                    {contentType, &other, []string{"deploy.yaml", "not.tmp", "pic.jpg"}},
		"the layer of a type":                                 {chartType, nil, []string{"app/Chart.yaml"}},
	} {
		t.Run(what, func(t *testing.T) {
			layer, err := image.Layer(string(c.mediaType))
			if err != nil {
				t.Fatal(err)
			}
			tree, err := layer.Tree(t.Context(), c.spec)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
				if !d.IsDir() {
					got = append(got, p)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("a layer as it is", func(t *testing.T) {
		layer, err := image.Layer(string(chartType))
		if err != nil {
			t.Fatal(err)
		}
		body, err := layer.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, chart) {
			t.Errorf("%v: %d bytes, want %d", err, len(got), len(chart))
		}
	})
	t.Run("a type that no layer has", func(t *testing.T) {
		_, err := image.Layer("application/none")
		wants(t, err, "OCIArtifactLayerOperationFailed", "its layers are of type '"+string(contentType)+"', '"+string(chartType)+"'")
	})
}

func TestPullRefusesBadLayers(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	good := archive(t, map[string]string{"a": "1"})
	for what, c := range map[string]struct {
		layer []byte
		says  string
	}{
		"no archive":             {[]byte("plain text"), "must be a .tar.gz"},
		"a truncated archive":    {good[:len(good)/2], "cannot be extracted"},
		"a path out":             {archive(t, map[string]string{"../a": "1"}), "leads out"},
		"an absolute path":       {archive(t, map[string]string{"/etc/passwd": "1"}), "leads out"},
		"a symlink out":          {archive(t, nil, tar.Header{Name: "l", Linkname: "../../etc", Typeflag: tar.TypeSymlink}), "leads out"},
		"a hard link out":        {archive(t, nil, tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}), "leads to no file"},
		"a device":               {archive(t, nil, tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), "only files"},
		"a bomb":                 {bomb(t, 2<<30), "unpacks to more than"},
		"names apart by case":    {archive(t, map[string]string{"Deploy.yaml": "1", "deploy.yaml": "2"}), "cannot be extracted"},
		"a name that is no text": {archive(t, map[string]string{"\xff": "1"}), "cannot be extracted"},
	} {
		t.Run(what, func(t *testing.T) {
			digest := push(t, r, "bad", "latest", nil, static.NewLayer(c.layer, contentType))
			image, err := open(t, r, "bad").Pull(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			layer, err := image.Layer("")
			if err != nil {
				t.Fatal(err)
			}
			_, err = layer.Tree(t.Context(), nil)
			wants(t, err, "OCIArtifactLayerOperationFailed", c.says)
		})
	}
}

// bomb is a small archive of one large file of zeros.
func bomb(t testing.TB, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	err = w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
	zeros := make([]byte, 1<<20)
	for left := size; err == nil && left > 0; left -= int64(len(zeros)) {
		_, err = w.Write(zeros)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPullRefusesWhatIsNotAsItsDigestSays puts something in the way that changes what the registry sends.
func TestPullRefusesWhatIsNotAsItsDigestSays(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	digest := push(t, r, "app", "latest", nil, static.NewLayer(archive(t, map[string]string{"a": "1"}), contentType))
	for what, c := range map[string]struct {
		resource string
		change   func([]byte) []byte
		says     string
	}{
		"another manifest": {"/manifests/", func(b []byte) []byte { return bytes.Replace(b, []byte("{"), []byte(`{"x":1,`), 1) }, "does not match"},
		"another layer":    {"/blobs/", func(b []byte) []byte { b[len(b)-1]++; return b }, "error verifying sha256 checksum"},
		"less of a layer":  {"/blobs/", func(b []byte) []byte { return b[:len(b)/2] }, "error verifying"},
		"more of a layer":  {"/blobs/", func(b []byte) []byte { return append(b, 0) }, "larger than its manifest says"},
		"no layer":         {"/blobs/", func([]byte) []byte { return nil }, "error verifying"},
	} {
		t.Run(what, func(t *testing.T) {
			between := changing{r.Transport(), c.resource, c.change}
			repo, err := Open(r.OCI+"/app", Access{Transport: between, Insecure: true})
			if err != nil {
				t.Fatal(err)
			}
			wants(t, pullFirst(t.Context(), repo, digest), "OCIArtifactPullFailed", c.says)
		})
	}
}

func pullFirst(ctx context.Context, repo *Repository, digest v1.Hash) error {
	image, err := repo.Pull(ctx, digest)
	if err != nil {
		return err
	}
	layer, err := image.Layer("")
	if err != nil {
		return err
	}
	_, err = layer.Tree(ctx, nil)
	return err
}

// changing changes the bodies of answers.
type changing struct {
	next     http.RoundTripper
	resource string
	change   func([]byte) []byte
}

func (c changing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, c.resource) || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	body = c.change(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), -1
	return resp, err
}

func TestAccess(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t, "--tls-dir", t.TempDir(), "--client-certificates", "--username", "me", "--password", "secret")
	push(t, r, "app", "latest", nil, static.NewLayer([]byte("a"), contentType))
	anonymous := r.Transport()
	anonymous.TLSClientConfig.Certificates = nil
	for what, c := range map[string]struct {
		a      Access
		reason string
		says   string
	}{
		"the login and the certificate": {Access{Transport: r.Transport(), Login: authn.AuthConfig{Username: "me", Password: "secret"}}, "", ""},
		"no login":                      {Access{Transport: r.Transport()}, "AuthenticationFailed", "Check the login"},
		"a wrong login":                 {Access{Transport: r.Transport(), Login: authn.AuthConfig{Username: "me", Password: "wrong"}}, "AuthenticationFailed", "Check the login"},
		"no client certificate":         {Access{Transport: anonymous, Login: authn.AuthConfig{Username: "me", Password: "secret"}}, "OCIArtifactPullFailed", "certificate required"},
		"an authority that is unknown":  {Access{Transport: http.DefaultTransport, Login: authn.AuthConfig{Username: "me", Password: "secret"}}, "OCIArtifactPullFailed", "certificate"},
	} {
		t.Run(what, func(t *testing.T) {
			repo, err := Open(r.OCI+"/app", c.a)
			if err != nil {
				t.Fatal(err)
			}
			_, err = repo.Resolve(t.Context(), Reference{})
			if c.reason == "" && err == nil {
				return
			}
			wants(t, err, c.reason, c.says)
			if secret := base64.StdEncoding.EncodeToString([]byte("me:secret")); strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), ":secret") {
				t.Errorf("the error tells the login: %v", err)
			}
		})
	}
}

func TestPlainHTTPIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	push(t, r, "app", "latest", nil, static.NewLayer([]byte("a"), contentType))
	repo, err := Open(r.OCI+"/app", Access{Transport: r.Transport(), Login: authn.AuthConfig{Username: "me", Password: "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	before := r.Stats()["requests"]
	if _, err := repo.Resolve(t.Context(), Reference{}); err == nil {
		t.Fatal("a registry without TLS was asked")
	}
	if after := r.Stats()["requests"]; after != before {
		t.Errorf("%d requests were sent in the open", after-before)
	}
}

// TestHostileAnswers checks that no answer makes us read without end.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]http.HandlerFunc{
		"a manifest without end": func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "manifests") {
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				forever(w)
			}
		},
		"tags without end": func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "tags") {
				_, _ = io.WriteString(w, `{"tags":["`)
				forever(w)
			}
		},
		"pages of tags without end": func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "tags") {
				w.Header().Set("Link", `</v2/app/tags/list?n=1000>; rel="next"`)
				_, _ = io.WriteString(w, `{"tags":[`+strings.Repeat(`"1.0.0",`, 9999)+`"1.0.0"]}`)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			repo, err := Open(strings.Replace(server.URL, "http", "oci", 1)+"/app", Access{Transport: http.DefaultTransport, Insecure: true})
			if err != nil {
				t.Fatal(err)
			}
			ref := Reference{SemVer: "*"}
			if strings.Contains(what, "manifest") {
				_, err = repo.Pull(t.Context(), v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)})
			} else {
				_, err = repo.Resolve(t.Context(), ref)
			}
			if fault.As(err) == nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

func forever(w io.Writer) {
	chunk := bytes.Repeat([]byte("a"), 1<<20)
	for err := error(nil); err == nil; {
		_, err = w.Write(chunk)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"oci://ghcr.io/team/app", "oci://[::1]:5000/a", "oci://a/b:c", "oci://a@b/c?d#e", "https://a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		repo, err := ParseURL(raw, false)
		if err != nil {
			return
		}
		again, err := ParseURL(Scheme+repo.Name(), false)
		if err != nil || again.Name() != repo.Name() || strings.ContainsAny(repo.Name(), "@?# \\%") || strings.Contains(repo.Name(), "..") {
			t.Errorf("%q became %q, and that %q (%v)", raw, repo.Name(), again.Name(), err)
		}
	})
}

func FuzzHighest(f *testing.F) {
	f.Add("1.0.0 v2 latest", ">=1", "")
	f.Add("1.0.0-dev", ">=1-0", "-dev$")
	f.Fuzz(func(t *testing.T, tags, versions, filter string) {
		all := strings.Fields(tags)
		got, err := Highest(all, versions, filter)
		if err == nil && !slices.Contains(all, got) {
			t.Errorf("%q is none of %q", got, all)
		}
		if err != nil && fault.As(err) == nil {
			t.Errorf("%v is no fault", err)
		}
	})
}
