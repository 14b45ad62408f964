package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// serve opens a repository of a registry that answers requests by path; others with an empty response.
func serve(t *testing.T, repo string, paths map[string]http.HandlerFunc) *Repository {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := paths[r.URL.Path]; answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(server.Close)
	opened, err := Open(strings.Replace(server.URL, "http", "oci", 1)+"/"+repo,
		Access{Transport: http.DefaultTransport, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// redirect returns a handler that redirects to a path.
func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) }
}

// TestListsOfTagsAreNoBlobs lists tags that are longer than a list may be, and shorter than a blob may be.
func TestListsOfTagsAreNoBlobs(t *testing.T) {
	t.Parallel()
	long := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"tags":["1.0.0"`+strings.Repeat(" ", 20<<20)+`]}`) // the client disconnects
	}
	blob := "/v2/app/blobs/sha256:" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		repo  string
		paths map[string]http.HandlerFunc
	}{
		"name of a repository with blobs": {repo: "x/blobs/y",
			paths: map[string]http.HandlerFunc{"/v2/x/blobs/y/tags/list": long}},
		"redirect": {repo: "app",
			paths: map[string]http.HandlerFunc{"/v2/app/tags/list": redirect("/elsewhere"), "/elsewhere": long}},
		"redirect to a blob": {repo: "app",
			paths: map[string]http.HandlerFunc{"/v2/app/tags/list": redirect(blob), blob: long}},
		"link to a blob": {repo: "app", paths: map[string]http.HandlerFunc{
			"/v2/app/tags/list": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "<"+blob+`>; rel="next"`)
				_, _ = io.WriteString(w, `{"tags":["1.0.0"]}`)
			}, blob: long}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, c.repo, c.paths).Resolve(t.Context(), Reference{SemVer: "*"})
			requireFault(t, err, "OCIArtifactPullFailed",
				"the response of the registry is too long: it exceeds 16777216 bytes")
		})
	}
}

// TestRedirectedBlobsMayBeLarge reads a blob that is longer than other responses may be.
func TestRedirectedBlobsMayBeLarge(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789abcdef"), 17<<16) // 17 MiB
	sum := sha256.Sum256(content)
	digest := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	repo := serve(t, "app", map[string]http.HandlerFunc{
		"/v2/app/blobs/" + digest.String(): redirect("/storage?signature=1"),
		"/storage":                         func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) },
	})
	layer := &Layer{&Image{repo: repo}, v1.Descriptor{Digest: digest, Size: int64(len(content))}}
	body, err := layer.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes, want %d: %v", len(got), len(content), err)
	}
}

// TestTextsThatAreNoTagsAreDropped lists a page that has texts besides tags.
func TestTextsThatAreNoTagsAreDropped(t *testing.T) {
	t.Parallel()
	repo := serve(t, "app", map[string]http.HandlerFunc{
		"/v2/app/tags/list": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"tags":["1.0.0","","a b","../x","1.0.0-%s","1.0.1"]}`, strings.Repeat("a", 1<<20))
		},
		"/v2/app/manifests/1.0": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
	})
	tags, err := repo.Tags(t.Context())
	if err != nil || !slices.Equal(tags, []string{"1.0.0", "1.0.1"}) {
		t.Errorf("got %d tags: %.200q, %v", len(tags), tags, err)
	}
	_, err = repo.Resolve(t.Context(), Reference{Tag: "1.0"})
	if f := fault.As(err); f == nil || f.Hint != "The repository has no such tag; the nearest are 1.0.0, 1.0.1" {
		t.Errorf("got %.300v", err)
	}
}

// Each of these manifests and lists has 12 MB, and took 3 GB of memory.
func TestResponsesOfManyValuesTakeLittleMemory(t *testing.T) {
	many := strings.Repeat("{},", 4_000_000) + "{}"
	manifest := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[` + many + "]}"
	index := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[` + many + "]}"
	tags := `{"tags":[` + strings.Repeat(`"",`, 4_000_000) + `""]}`
	answer := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text) // the client disconnects
		}
	}
	digest := func(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
	subject := "sha256:" + strings.Repeat("0", 64)
	r := serve(t, "app", map[string]http.HandlerFunc{
		"/v2/app/manifests/" + digest(manifest): answer("application/vnd.oci.image.manifest.v1+json", manifest),
		"/v2/app/manifests/" + digest(index):    answer("application/vnd.oci.image.index.v1+json", index),
		"/v2/app/referrers/" + subject:          answer("application/vnd.oci.image.index.v1+json", index),
		"/v2/app/tags/list":                     answer("application/json", tags),
	})
	at := func(digest string) name.Digest { return r.name.Digest(digest) }
	for what, do := range map[string]func() error{
		"a manifest": func() error {
			image, err := remote.Image(at(digest(manifest)), r.Options()...)
			if err == nil {
				_, err = image.Manifest()
			}
			return err
		},
		"an index": func() error {
			list, err := remote.Index(at(digest(index)), r.Options()...)
			if err == nil {
				_, err = list.IndexManifest()
			}
			return err
		},
		"signatures": func() error {
			list, err := remote.Referrers(at(subject), r.Options()...)
			if err == nil {
				_, err = list.IndexManifest()
			}
			return err
		},
		"tags": func() error { _, err := r.Tags(t.Context()); return err },
	} {
		n := allocation.Bytes(func() {
			if err := do(); err == nil || !strings.Contains(err.Error(), "has too many values") {
				t.Errorf("%s: %v", what, err)
			}
		})
		if n > 32<<20 {
			t.Errorf("%s: %d MiB were allocated", what, n>>20)
		}
	}
}
