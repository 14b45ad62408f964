package mirror

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sluice-gitops/sluice/internal/credentials/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/signing"
)

// keychain has the login of the Helm repository.
type keychain struct{ host string }

func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != k.host {
		return authn.Anonymous, nil
	}
	return &authn.Basic{Username: chartrepo.User, Password: chartrepo.Password}, nil
}

// setup is a registry with something of each kind, and a Helm repository.
type setup struct {
	*ociregistry.Server
	registries *Registries
	items      []Item
	image      name.Digest // index of two platforms, which is signed
	key        *signing.Key
	fail       *failing
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	charts := chartrepo.New(t)
	charts.Publish(chartrepo.NewChart("redis", "1.2.3+build.1"), chartrepo.NewChart("redis", "0.9.0"))
	s := &setup{Server: ociregistry.New(t), key: signing.NewKey(t)}
	s.fail = &failing{next: charts.Transport()}
	_, helmHost, _ := strings.Cut(charts.URL, "://")
	helmHost, _, _ = strings.Cut(helmHost, "/")
	s.registries = &Registries{Transport: s.fail, Keychain: keychain{helmHost}, PlainHTTP: []string{s.Host}}
	index, err := random.Index(1000, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(s.Host+"/org/app:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index, s.Access()...); err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s.image = tag.Digest(digest.String())
	s.key.Bundle(signing.Target{TB: t, Image: s.image, Access: s.Access()})
	layer, err := random.Layer(500, "application/vnd.test")
	if err != nil {
		t.Fatal(err)
	}
	s.Push("org/manifests", "1.4.0", nil, layer)
	s.Push("org/app", strings.ReplaceAll(digest.String(), ":", "-")+".sig", nil, layer)
	s.items = []Item{
		{Kind: Image, Repository: s.Host + "/org/app", Tag: "v1"},
		{Kind: Artifact, Repository: s.Host + "/org/manifests", Version: "1.x"},
		{Kind: WebChart, Chart: "redis", Version: "1.x", ChartsURL: charts.URL,
			Repository: helmHost + "/redis"},
	}
	return s
}

// failing fails some requests.
type failing struct {
	next    http.RoundTripper
	failure func(*http.Request) error
}

func (f *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.failure != nil {
		if err := f.failure(r); err != nil {
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

func (s *setup) copier(t *testing.T, to destination) *Copier {
	t.Helper()
	return &Copier{Registries: s.registries, To: to, MaxBytes: 1 << 20,
		Sleep:    func(context.Context, time.Duration) error { return nil },
		Retrying: func(item Item, err error) { t.Logf("again: %s: %v", item.Name(), err) }}
}

func (s *setup) mirror(path string) *Registry {
	return &Registry{Prefix: s.Host + path, Registries: s.registries}
}

// check checks that a mirror has everything, and that the signatures verify there.
func (s *setup) check(t *testing.T, prefix string) {
	t.Helper()
	repository, err := Target(s.Host+prefix, s.Host+"/org/app")
	if err != nil {
		t.Fatal(err)
	}
	repo, err := name.NewRepository(repository, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(repo.Tag("v1"), s.Access()...)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := index.Digest(); err != nil || digest.String() != s.image.DigestStr() {
		t.Errorf("the mirror has %s, want %s: %v", digest, s.image.DigestStr(), err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	verifier, err := cosign.Keys(map[string][]byte{"a.pub": s.key.Public})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(t.Context(), repo.Digest(s.image.DigestStr()), s.Access()...); err != nil {
		t.Error(err)
	}
	old := strings.ReplaceAll(s.image.DigestStr(), ":", "-") + ".sig"
	if _, err := remote.Head(repo.Tag(old), s.Access()...); err != nil {
		t.Errorf("the signature with a tag: %v", err)
	}
	s.checkChart(t, prefix)
}

// checkChart checks the chart from a Helm repository: its package is that of the repository.
func (s *setup) checkChart(t *testing.T, prefix string) {
	t.Helper()
	repository, err := Target(s.Host+prefix, s.items[2].Repository)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(repository+":1.2.3_build.1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag, s.Access()...)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := v1.SHA256(bytes.NewReader(chartrepo.Package(t, chartrepo.NewChart("redis", "1.2.3+build.1"))))
	if err != nil {
		t.Fatal(err)
	}
	if got := manifest.Layers[0]; got.Digest != want || got.MediaType != chartLayerType {
		t.Errorf("the chart is %+v, want %s", got, want)
	}
}

// all copies all items and returns the number of blobs and manifests that were transferred.
func (s *setup) all(t *testing.T, c *Copier) int64 {
	t.Helper()
	var blobs int64
	for _, item := range s.items {
		copied, err := c.Copy(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		blobs += copied.Blobs
	}
	return blobs
}

func TestCopyToRegistry(t *testing.T) {
	s := newSetup(t)
	if blobs := s.all(t, s.copier(t, s.mirror("/mirror"))); blobs < 10 {
		t.Errorf("copied %d parts", blobs)
	}
	s.check(t, "/mirror")
	if blobs := s.all(t, s.copier(t, s.mirror("/mirror"))); blobs != 0 {
		t.Errorf("the second run copied %d parts", blobs)
	}
}

// TestInterruptedCopyIsResumed breaks the connection in the first attempt of each blob.
func TestInterruptedCopyIsResumed(t *testing.T) {
	s := newSetup(t)
	var left atomic.Int64
	left.Store(2)
	s.fail.failure = func(r *http.Request) error {
		if strings.Contains(r.URL.Path, "/org/app/blobs/") && left.Add(-1) >= 0 {
			return errors.New("connection reset")
		}
		return nil
	}
	s.all(t, s.copier(t, s.mirror("/mirror")))
	s.check(t, "/mirror")
	if left.Load() >= 0 {
		t.Error("no request failed")
	}
}

func TestMissingImageIsNotTriedAgain(t *testing.T) {
	s := newSetup(t)
	c := s.copier(t, s.mirror("/mirror"))
	c.Retrying = func(Item, error) { t.Error("tried again") }
	_, err := c.Copy(t.Context(), Item{Kind: Image, Repository: s.Host + "/org/app", Tag: "absent"})
	if err == nil || !strings.Contains(err.Error(), "cannot copy "+s.Host+"/org/app:absent") {
		t.Errorf("error: %v", err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	s := newSetup(t)
	c := s.copier(t, s.mirror("/mirror"))
	c.MaxBytes = 100
	if _, err := c.Copy(t.Context(), s.items[0]); err == nil || !strings.Contains(err.Error(), "--max-size") {
		t.Errorf("error: %v", err)
	}
}

func TestArchive(t *testing.T) {
	s := newSetup(t)
	var archives [][]byte
	file := filepath.Join(t.TempDir(), "mirror.tar")
	for range 2 {
		archive, err := NewArchive(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		s.all(t, s.copier(t, archive))
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, content)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same content differ")
	}
	if _, err := os.Stat(file + partialSuffix); !os.IsNotExist(err) {
		t.Errorf("the partial directory was not removed: %v", err)
	}
	s.restore(t, file, "/restored")
	s.check(t, "/restored")
}

func (s *setup) restore(t *testing.T, file, prefix string) {
	t.Helper()
	archive, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if len(archive.Names) != 5 { // three items, two signatures
		t.Errorf("the archive has %d names: %+v", len(archive.Names), archive.Names)
	}
	c := s.copier(t, s.mirror(prefix))
	for _, n := range archive.Names {
		if _, err := c.Restore(t.Context(), archive, n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInterruptedArchiveIsContinued copies one item, and the others in a second run.
func TestInterruptedArchiveIsContinued(t *testing.T) {
	s := newSetup(t)
	file := filepath.Join(t.TempDir(), "mirror.tar")
	first, err := NewArchive(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.copier(t, first).Copy(t.Context(), s.items[0]); err != nil {
		t.Fatal(err)
	}
	second, err := NewArchive(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := s.copier(t, second).Copy(t.Context(), s.items[0])
	if err != nil || copied.Blobs != 0 {
		t.Errorf("copied again: %+v, %v", copied, err)
	}
	s.all(t, s.copier(t, second))
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	s.restore(t, file, "/restored")
	s.check(t, "/restored")
}
