package registry_test

import (
	"errors"
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
	"github.com/sluice-gitops/sluice/internal/testenv"
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
func pushImages(t *testing.T, write func(tag string, image v1.Image), built time.Time, origin *testenv.Registry) {
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
	origin := testenv.NewRegistry(t)
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
	unknown := func(string) (policy.Tag, bool) { return policy.Tag{}, false }
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
