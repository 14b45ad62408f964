package registry

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

var (
	listing = regexp.MustCompile(`^(/v2/.+)/referrers/(sha256:[0-9a-f]{64})$`)
	pushing = regexp.MustCompile(`^(/v2/.+)/manifests/[^/]+$`)
)

// maxManifest is how large the distribution specification wants manifests to be at most.
const maxManifest = 4 << 20

// referrers serves the referrers API of the distribution specification over a registry that has none. It
// keeps what refers to a digest in the index that clients keep where there is no such API: under the tag
// sha256-<digest>.
type referrers struct {
	next http.Handler
	mu   sync.Mutex // while an index is changed
}

func (h *referrers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m := listing.FindStringSubmatch(r.URL.Path); m != nil && r.Method == http.MethodGet {
		writeJSON(w, h.index(r, m[1], m[2]))
		return
	}
	if m := pushing.FindStringSubmatch(r.URL.Path); m != nil && r.Method == http.MethodPut {
		h.push(w, r, m[1])
		return
	}
	h.next.ServeHTTP(w, r)
}

func (h *referrers) push(w http.ResponseWriter, r *http.Request, repo string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxManifest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var manifest ocispec.Manifest
	refers := json.Unmarshal(body, &manifest) == nil && manifest.Subject != nil
	if refers {
		w.Header().Set("OCI-Subject", manifest.Subject.Digest.String())
	}
	answer := httptest.NewRecorder()
	h.next.ServeHTTP(answer, with(r, r.URL.Path, body))
	if refers && answer.Code == http.StatusCreated {
		kind := manifest.ArtifactType
		if kind == "" {
			kind = manifest.Config.MediaType
		}
		h.add(r, repo, manifest.Subject.Digest.String(), ocispec.Descriptor{
			MediaType: r.Header.Get("Content-Type"), Digest: digest.FromBytes(body), Size: int64(len(body)),
			ArtifactType: kind, Annotations: manifest.Annotations,
		})
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = answer.Body.WriteTo(w) // the reader may be gone
}

func (h *referrers) add(r *http.Request, repo, subject string, d ocispec.Descriptor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	index := h.index(r, repo, subject)
	if slices.ContainsFunc(index.Manifests, func(o ocispec.Descriptor) bool { return o.Digest == d.Digest }) {
		return
	}
	index.Manifests = append(index.Manifests, d)
	text, err := json.Marshal(index)
	if err != nil {
		panic(err) // it has no values that cannot be marshalled
	}
	put := with(r, tagOf(repo, subject), text)
	put.Method = http.MethodPut
	put.Header.Set("Content-Type", ocispec.MediaTypeImageIndex)
	h.next.ServeHTTP(httptest.NewRecorder(), put)
}

// index is what refers to a digest; it is empty if nothing does.
func (h *referrers) index(r *http.Request, repo, subject string) ocispec.Index {
	get := with(r, tagOf(repo, subject), nil)
	get.Method = http.MethodGet
	get.Header.Set("Accept", ocispec.MediaTypeImageIndex)
	answer := httptest.NewRecorder()
	h.next.ServeHTTP(answer, get)
	var found ocispec.Index
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &found) != nil {
		found.Manifests = []ocispec.Descriptor{}
	}
	found.Versioned, found.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageIndex
	return found
}

func tagOf(repo, subject string) string {
	return repo + "/manifests/" + strings.Replace(subject, ":", "-", 1)
}

// with is the request for another path and with another body.
func with(r *http.Request, path string, body []byte) *http.Request {
	c := r.Clone(r.Context())
	c.URL.Path, c.URL.RawPath, c.URL.RawQuery, c.RequestURI = path, "", "", path
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return c
}

func writeJSON(w http.ResponseWriter, index ocispec.Index) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	_ = json.NewEncoder(w).Encode(index) // the reader may be gone
}
