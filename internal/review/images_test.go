package review

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestImagesInRegistry looks up images as an allowed author and as a stranger, for whom no private network is asked.
func TestImagesInRegistry(t *testing.T) {
	t.Parallel()
	requests := 0
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if strings.HasPrefix(r.URL.Path, "/v2/closed/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := name.ParseReference(host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, empty.Image); err != nil {
		t.Fatal(err)
	}
	r, err := newRegistries(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	all := []Image{{Name: host + "/app:1"}, {Name: host + "/app:2"}, {Name: host + "/closed/app:1"}, {Name: "UPPER:::"}}
	r.check(t.Context(), all, true)
	for n, want := range []string{"exists", "does not exist", "the registry needs a login", "the name is not valid"} {
		got := all[n].Why
		if e := all[n].Exists; e != nil {
			got = map[bool]string{true: "exists", false: "does not exist"}[*e]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", all[n].Name, got, want)
		}
	}
	before := requests
	strange := []Image{{Name: host + "/app:1"}}
	r.check(t.Context(), strange, false)
	if strange[0].Exists != nil || requests != before {
		t.Errorf("a stranger reaches a loopback address: %+v, %d requests", strange[0], requests-before)
	}
}
