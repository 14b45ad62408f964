package system

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// Images is a system with a registry.
type Images struct {
	*System
	Registry *ociregistry.Server
	URL      string // of the API
}

// NewImages starts the controllers with the image tag API, and a registry.
func NewImages(t *testing.T, configure ...func(*options.Options)) *Images {
	t.Helper()
	address := testenv.FreeAddress(t)
	s := New(t, append(configure, func(o *options.Options) { o.ImagesAddr = address })...)
	return &Images{System: s, Registry: ociregistry.New(t), URL: "http://" + address}
}

// Push pushes one image per tag, with a creation time and a label that holds the tag.
func (s *Images) Push(repo string, created time.Time, tags ...string) {
	s.Helper()
	for _, tag := range tags {
		image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
			OS: "linux", Architecture: "amd64", Created: v1.Time{Time: created}, RootFS: v1.RootFS{Type: "layers"},
			Config: v1.Config{Labels: map[string]string{"tag": tag}},
		})
		if err != nil {
			s.Fatal(err)
		}
		ref, err := name.NewTag(s.Registry.Host+"/"+repo+":"+tag, name.Insecure)
		if err != nil {
			s.Fatal(err)
		}
		if err := remote.Write(ref, image, s.Registry.Access()...); err != nil {
			s.Fatal(err)
		}
	}
}

// ImageRepository creates an ImageRepository for the repository of the same name.
func (s *Images) ImageRepository(called string, change ...func(*imagev1.ImageRepositorySpec)) {
	s.Helper()
	r := &imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: called},
		Spec: imagev1.ImageRepositorySpec{Image: s.Registry.Host + "/" + called,
			Interval: meta.Duration{Duration: time.Hour}, Insecure: true},
	}
	for _, c := range change {
		c(&r.Spec)
	}
	s.Create(r)
}

// ImagePolicy creates an ImagePolicy for an ImageRepository.
func (s *Images) ImagePolicy(called, repository string, change func(*imagev1.ImagePolicySpec)) {
	s.Helper()
	p := &imagev1.ImagePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: called},
		Spec:       imagev1.ImagePolicySpec{ImageRepositoryRef: meta.NamespacedName{Name: repository}},
	}
	change(&p.Spec)
	s.Create(p)
}

// BySemVer makes a policy select the highest version in a range.
func BySemVer(versions string) func(*imagev1.ImagePolicySpec) {
	return func(s *imagev1.ImagePolicySpec) { s.Policy.SemVer = &imagev1.SemVerPolicy{Range: versions} }
}

// Scanned waits until an ImageRepository is Ready with a number of tags and its last request handled, and returns it.
func (s *Images) Scanned(called string, tags int) *imagev1.ImageRepository {
	s.Helper()
	r := &imagev1.ImageRepository{}
	s.eventually(called+" is scanned", func() error {
		if err := s.Get(r, called); err != nil {
			return err
		}
		if last := r.Status.LastScanResult; !reconcile.IsReady(r) || last == nil || last.TagCount != tags ||
			r.Annotations[meta.ReconcileRequestAnnotation] != r.Status.LastHandledReconcileAt {
			return fmt.Errorf("%+v", r.Status)
		}
		return nil
	})
	return r
}

// Latest waits until an ImagePolicy is Ready with a tag, and returns it.
func (s *Images) Latest(called, tag string) *imagev1.ImagePolicy {
	s.Helper()
	p := &imagev1.ImagePolicy{}
	s.eventually(called+" has "+tag, func() error {
		if err := s.Get(p, called); err != nil {
			return err
		}
		if !reconcile.IsReady(p) || p.Status.LatestRef == nil || p.Status.LatestRef.Tag != tag {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	return p
}
