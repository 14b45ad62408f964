package registry_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// imageFor returns an image without layers for a platform.
func imageFor(t *testing.T, platform v1.Platform, created time.Time, labels map[string]string) v1.Image {
	t.Helper()
	i, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: created}, Config: v1.Config{Labels: labels}, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// pushImages pushes an image of each kind and an index.
func pushImages(t *testing.T, write func(tag string, image v1.Image), built time.Time, origin *ociregistry.Server) {
	t.Helper()
	amd, arm := v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64"}
	arm8 := v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	attestation := v1.Platform{OS: "unknown", Architecture: "unknown"}
	write("plain", imageFor(t, amd, built, map[string]string{"team": "shop"}))
	write("reproducible", imageFor(t, arm8, time.Unix(0, 0),
		map[string]string{"org.opencontainers.image.created": "2026-11-20T01:02:03Z"}))
	write("timeless", imageFor(t, arm8, time.Unix(0, 0), nil))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageFor(t, arm, built.Add(time.Hour), map[string]string{"team": "shop"}),
			Descriptor: v1.Descriptor{Platform: &arm}},
		mutate.IndexAddendum{Add: imageFor(t, amd, built, nil), Descriptor: v1.Descriptor{Platform: &amd}},
		mutate.IndexAddendum{Add: imageFor(t, attestation, built, nil),
			Descriptor: v1.Descriptor{Platform: &attestation}},
	)
	ref, err := name.NewTag(origin.Host+"/"+repo+":both", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index, origin.Access()...); err != nil {
		t.Fatal(err)
	}
}

func TestReadReturnsImageDetails(t *testing.T) {
	origin := ociregistry.New(t)
	built := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	write := func(tag string, image v1.Image) {
		ref, err := name.NewTag(origin.Host+"/"+repo+":"+tag, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, image, origin.Access()...); err != nil {
			t.Fatal(err)
		}
	}
	pushImages(t, write, built, origin)
	r := open(t, origin.Host)
	for tag, want := range map[string]policy.Tag{
		"plain": {Created: built, Labels: map[string]string{"team": "shop"}, Platforms: []string{"linux/amd64"}},
		"reproducible": {Created: time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC),
			Labels:    map[string]string{"org.opencontainers.image.created": "2026-11-20T01:02:03Z"},
			Platforms: []string{"linux/arm64/v8"}},
		"timeless": {Platforms: []string{"linux/arm64/v8"}},
		"both": {Created: built.Add(time.Hour), Labels: map[string]string{"team": "shop"},
			Platforms: []string{"linux/amd64", "linux/arm64"}},
	} {
		got, err := r.Read(t.Context(), policy.Tag{Name: tag}, unknown)
		if err != nil {
			t.Fatalf("%s: %v", tag, err)
		}
		want.Name, want.Digest = tag, got.Digest
		if diff := cmp.Diff(want, got); diff != "" || len(got.Digest) != 71 {
			t.Errorf("%s: %s", tag, diff)
		}
		if current, err := r.Current(t.Context(), tag); err != nil || current != got.Digest {
			t.Errorf("%s is at %s, %v", tag, current, err)
		}
		again, err := r.Read(t.Context(), got,
			func(string) (policy.Tag, bool) { t.Error("asked for what did not change"); return policy.Tag{}, false })
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("%s: %v %s", tag, err, diff)
		}
		other, err := r.Read(t.Context(), policy.Tag{Name: tag},
			func(string) (policy.Tag, bool) { return policy.Tag{Name: "x", Digest: got.Digest}, true })
		if err != nil || other.Name != tag || other.Labels != nil {
			t.Errorf("details known from another tag: %v, %v", other, err)
		}
	}
	if _, err := r.Read(t.Context(), policy.Tag{Name: "gone"}, unknown); !errors.Is(err, registry.ErrUnreadable) {
		t.Errorf("deleted tag: %v", err)
	}
}

// TestReadDropsLongPlatforms checks that a registry cannot make the details of a tag large.
func TestReadDropsLongPlatforms(t *testing.T) {
	origin := ociregistry.New(t)
	index := v1.ImageIndex(empty.Index)
	image := imageFor(t, v1.Platform{OS: strings.Repeat("o", 1<<20)}, time.Time{}, nil)
	for _, p := range []v1.Platform{
		{OS: "linux", Architecture: "amd64"}, {OS: strings.Repeat("o", 1<<20), Architecture: "a"},
		{OS: "linux", Architecture: strings.Repeat("a", 1<<20)}, {OS: "linux", Architecture: "arm,a,b,c"},
		{OS: "linux", Architecture: "arm", Variant: strings.Repeat("v", 1<<19)},
	} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p}})
	}
	at := func(tag string) name.Tag {
		ref, err := name.NewTag(origin.Host+"/"+repo+":"+tag, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	if err := remote.WriteIndex(at("index"), index, origin.Access()...); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(at("image"), image, origin.Access()...); err != nil {
		t.Fatal(err)
	}
	r := open(t, origin.Host)
	for tag, want := range map[string][]string{"index": {"linux/amd64"}, "image": nil} {
		got, err := r.Read(t.Context(), policy.Tag{Name: tag}, unknown)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Platforms); diff != "" || got.Memory() > 1<<10 {
			t.Errorf("%s takes %d bytes (-want +got):\n%s", tag, got.Memory(), diff)
		}
	}
}

// TestImagesThatTakeMuchMemoryAreUnreadable checks manifests and configurations that are small, but have many values.
func TestImagesThatTakeMuchMemoryAreUnreadable(t *testing.T) {
	f := newProxy(t, ociregistry.New(t))
	many := strings.Repeat(`{},`, 300_000) + `{}`
	contents := map[string]string{} // by digest
	add := func(content string) string {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
		contents[digest] = content
		return digest
	}
	const image = `{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":%d,` +
		`"digest":%q},"layers":[%s]}`
	config, small := `{"os":"linux","history":[`+many+`]}`, `{"os":"linux"}`
	tags := map[string]string{
		"index":  add(`{"schemaVersion":2,"manifests":[` + many + `]}`),
		"large":  add(`{"schemaVersion":2,"annotations":{"a":"` + strings.Repeat("x", 5<<20) + `"}}`),
		"layers": add(fmt.Sprintf(image, len(small), add(small), many)),
		"config": add(fmt.Sprintf(image, len(config), add(config), "")),
	}
	f.overrideWith(func(w http.ResponseWriter, r *http.Request) bool {
		name := path.Base(r.URL.Path)
		if !strings.Contains(r.URL.Path, "/manifests/") && !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		digest, ok := tags[name]
		if !ok {
			digest = name
		}
		kind := "application/vnd.oci.image.manifest.v1+json"
		if digest == tags["index"] {
			kind = "application/vnd.oci.image.index.v1+json"
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", fmt.Sprint(len(contents[digest])))
		w.Header().Set("Docker-Content-Digest", digest)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, contents[digest])
		}
		return true
	})
	r := open(t, hostOf(f.Server))
	for tag := range tags {
		if got, err := r.Read(t.Context(), policy.Tag{Name: tag}, unknown); !errors.Is(err, registry.ErrUnreadable) {
			t.Errorf("%s was read: %d bytes, %v", tag, got.Memory(), err)
		}
	}
}

// unknown has the details of no digest.
func unknown(string) (policy.Tag, bool) { return policy.Tag{}, false }
