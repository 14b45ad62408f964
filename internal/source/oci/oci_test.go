package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	contentType = types.MediaType("application/vnd.cncf.flux.content.v1.tar+gzip")
	chartType   = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// archive returns a .tar.gz archive of files, followed by entries without content.
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
func push(t testing.TB, r *ociregistry.Server, repo, tag string, annotations map[string]string,
	layers ...v1.Layer) v1.Hash {
	t.Helper()
	digest, err := v1.NewHash(r.Push(repo, tag, annotations, layers...).DigestStr())
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func open(t testing.TB, r *ociregistry.Server, repo string) *Repository {
	t.Helper()
	opened, err := Open(r.OCI+"/"+repo, Access{Transport: r.Transport(), Insecure: r.CA == nil})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// requireFault fails the test unless the error is a fault with the reason whose text contains the message.
func requireFault(t *testing.T, err error, reason, message string) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Reason != reason || !strings.Contains(err.Error(), message) {
		t.Fatalf("got %v, want %s with %q", err, reason, message)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	digests := map[string]v1.Hash{}
	for _, tag := range []string{"latest", "1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1", "v1.3.0-prod", "1.9.0-dev",
		"nightly"} {
		digests[tag] = push(t, r, "team/app", tag, nil, static.NewLayer([]byte(tag), contentType))
	}
	for name, c := range map[string]struct {
		ref  Reference
		want string // tag
	}{
		"tag latest by default":           {ref: Reference{}, want: "latest"},
		"tag":                             {ref: Reference{Tag: "nightly"}, want: "nightly"},
		"highest version":                 {ref: Reference{SemVer: "1.x"}, want: "1.10.0"},
		"range takes precedence over tag": {ref: Reference{SemVer: "<1.2", Tag: "nightly"}, want: "1.0.0"},
		"prerelease in the range":         {ref: Reference{SemVer: ">=1.0.0-0"}, want: "2.0.0-rc.1"},
		"filter": {ref: Reference{SemVer: ">=1.0.0-0", SemverFilter: ".*-prod$"},
			want: "v1.3.0-prod"},
		"filter of prereleases": {ref: Reference{SemVer: ">=1.0.0-0", SemverFilter: "-dev$"},
			want: "1.9.0-dev"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := open(t, r, "team/app").Resolve(t.Context(), c.ref)
			if err != nil || got.String() != c.want+"@"+digests[c.want].String() {
				t.Errorf("got %v and %v, want %s", got, err, c.want)
			}
		})
	}
	t.Run("digest takes precedence", func(t *testing.T) {
		d := digests["1.0.0"]
		got, err := open(t, r, "team/app").Resolve(t.Context(),
			Reference{Digest: d.String(), SemVer: "*", Tag: "nightly"})
		if err != nil || got.String() != d.String() {
			t.Errorf("got %v and %v", got, err)
		}
	})
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	push(t, r, "app", "1.0.0", nil, static.NewLayer([]byte("a"), contentType))
	for name, c := range map[string]struct {
		repo    string
		ref     Reference
		reason  string
		message string
	}{
		"missing tag": {repo: "app", ref: Reference{Tag: "none"}, reason: "OCIArtifactPullFailed",
			message: "The repository has no such tag; the nearest are 1.0.0"},
		"missing repository": {repo: "none", ref: Reference{SemVer: "*"}, reason: "OCIArtifactPullFailed",
			message: "cannot list the tags"},
		"missing digest": {repo: "app", ref: Reference{Digest: "sha256:" + strings.Repeat("0", 64)},
			reason: "OCIArtifactPullFailed", message: "cannot find"},
		"invalid digest": {repo: "app", ref: Reference{Digest: "sha256:0"}, reason: "URLInvalid",
			message: "Write it as sha256:<64 hexadecimal digits> in spec.ref.digest"},
		"invalid range": {repo: "app", ref: Reference{SemVer: "one"}, reason: "InvalidSemver",
			message: "Correct spec.ref.semver; an example is >=1.0.0 <2.0.0"},
		"invalid filter": {repo: "app", ref: Reference{SemVer: "*", SemverFilter: "("}, reason: "InvalidSemver",
			message: "Correct spec.ref.semverFilter; an example is .*-prod$"},
		"no matching tag": {repo: "app", ref: Reference{SemVer: ">1"}, reason: "OCIArtifactPullFailed",
			message: "no tag matches semver '>1' (1 tag checked). Push a tag of three numbers in this range, or " +
				"correct spec.ref.semver and spec.ref.semverFilter"},
		"tag with a path": {repo: "app", ref: Reference{Tag: "../../other/manifests/1.0.0"}, reason: "URLInvalid",
			message: "is not a valid tag. Tags consist of letters, digits, dots, dashes and underscores, up to " +
				"128 characters"},
		"tag with a digest": {repo: "app", ref: Reference{Tag: "1.0.0@sha256:0"}, reason: "URLInvalid",
			message: "is not a valid tag"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, r, c.repo).Resolve(t.Context(), c.ref)
			requireFault(t, err, c.reason, c.message)
		})
	}
}

func TestResolveSendsOneHead(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
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
