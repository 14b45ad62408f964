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

func push(t testing.TB, r *testenv.Registry, repo, tag string, annotations map[string]string,
	layers ...v1.Layer) v1.Hash {
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
	for _, tag := range []string{"latest", "1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1", "v1.3.0-prod", "1.9.0-dev",
		"nightly"} {
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
		got, err := open(t, r, "team/app").Resolve(t.Context(),
			Reference{Digest: d.String(), SemVer: "*", Tag: "nightly"})
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
		"a tag that is not there": {"app", Reference{Tag: "none"}, "OCIArtifactPullFailed",
			"Check the URL and the reference"},
		"a repository that is not": {"none", Reference{SemVer: "*"}, "OCIArtifactPullFailed",
			"cannot list the tags"},
		"a digest that is not there": {"app", Reference{Digest: "sha256:" + strings.Repeat("0", 64)},
			"OCIArtifactPullFailed", "cannot find"},
		"a digest that is none": {"app", Reference{Digest: "sha256:0"}, "URLInvalid", "spec.ref.digest"},
		"a range that is none":  {"app", Reference{SemVer: "one"}, "InvalidSemver", "spec.ref.semver"},
		"a filter that is none": {"app", Reference{SemVer: "*", SemverFilter: "("}, "InvalidSemver",
			"spec.ref.semverFilter"},
		"a range without a tag": {"app", Reference{SemVer: ">1"}, "OCIArtifactPullFailed",
			"no tag of 1 is a version"},
		"a tag that leads elsewhere": {"app", Reference{Tag: "../../other/manifests/1.0.0"}, "URLInvalid",
			"is no tag"},
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

// bomb is a small archive of one large file of zeros.

// TestPullRefusesWhatIsNotAsItsDigestSays puts something in the way that changes what the registry sends.

// changing changes the bodies of answers.

// TestHostileAnswers checks that no answer makes us read without end.
