package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// GitRepository creates a GitRepository for the repository of the same name.
func (s *System) GitRepository(name string, change ...func(*sourcev1.GitRepository)) {
	s.Helper()
	g := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: sourcev1.GitRepositorySpec{
			Interval: meta.Duration{Duration: time.Hour}, Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		},
	}
	if s.Git != nil {
		g.Spec.URL = s.Git.URL + "/" + name
	}
	for _, c := range change {
		c(g)
	}
	s.Create(g)
}

// RequestFetch requests a reconcile of a GitRepository, like a webhook does.
func (s *System) RequestFetch(name string) {
	s.Helper()
	s.RequestReconcile(&sourcev1.GitRepository{}, name)
}

// GitRepositoryReady waits until a GitRepository is Ready at a commit, and returns it.
func (s *System) GitRepositoryReady(name, commit string) *sourcev1.GitRepository {
	s.Helper()
	g := &sourcev1.GitRepository{}
	s.eventually(name+" is fetched", func() error {
		if err := s.Get(g, name); err != nil {
			return err
		}
		if !reconcile.IsReady(g) || g.Status.Artifact == nil || !strings.HasSuffix(g.Status.Artifact.Revision, commit) {
			return fmt.Errorf("%+v", g.Status)
		}
		return nil
	})
	return g
}

// StoredArtifact waits until a GitRepository has an artifact of a commit, and returns the artifact.
func (s *System) StoredArtifact(name, commit string) *meta.Artifact {
	s.Helper()
	g := &sourcev1.GitRepository{}
	s.eventually(name+" has an artifact", func() error {
		if err := s.Get(g, name); err != nil {
			return err
		}
		if g.Status.Artifact == nil || !strings.HasSuffix(g.Status.Artifact.Revision, commit) {
			return fmt.Errorf("%+v", g.Status.Conditions)
		}
		return nil
	})
	return g.Status.Artifact
}

// Bucket creates a Bucket for the bucket "apps" of a server, with a Secret of the server's keys.
func (s *System) Bucket(server *s3server.Server, change ...func(*sourcev1.Bucket)) {
	s.Helper()
	s.Secret("keys", map[string]string{"accesskey": s3server.AccessKey, "secretkey": s3server.SecretKey})
	b := &sourcev1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "apps"},
		Spec: sourcev1.BucketSpec{
			Provider: sourcev1.ProviderGeneric, Endpoint: server.Endpoint, BucketName: "apps", Region: "us-east-1",
			Insecure: true,
			Interval: meta.Duration{Duration: time.Hour}, SecretRef: &meta.LocalObjectReference{Name: "keys"},
		},
	}
	for _, c := range change {
		c(b)
	}
	s.Create(b)
}

// HelmRepository creates the HelmRepository "charts" of a server, with Secrets for its login and authority.
func (s *System) HelmRepository(h *chartrepo.Server, change ...func(*sourcev1.HelmRepositorySpec)) {
	s.Helper()
	s.Secret("login", map[string]string{"username": chartrepo.User, "password": chartrepo.Password})
	s.Secret("authority", map[string]string{"ca.crt": string(h.CA)})
	r := &sourcev1.HelmRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "charts"},
		Spec: sourcev1.HelmRepositorySpec{
			URL: h.URL, Interval: meta.Duration{Duration: time.Hour},
			SecretRef:     &meta.LocalObjectReference{Name: "login"},
			CertSecretRef: &meta.LocalObjectReference{Name: "authority"},
		},
	}
	for _, c := range change {
		c(&r.Spec)
	}
	s.Create(r)
}

// HelmChart creates a HelmChart of the chart "app" in the HelmRepository "charts".
func (s *System) HelmChart(name string, change ...func(*sourcev1.HelmChartSpec)) {
	s.Helper()
	c := &sourcev1.HelmChart{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: sourcev1.HelmChartSpec{
			Chart: "app", Interval: meta.Duration{Duration: time.Hour},
			SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"},
		},
	}
	for _, f := range change {
		f(&c.Spec)
	}
	s.Create(c)
}

// ContentMediaType is the media type of a layer with manifests.
const ContentMediaType = types.MediaType("application/vnd.cncf.flux.content.v1.tar+gzip")

// OCIRepository creates an OCIRepository for a repository of a registry.
func (s *System) OCIRepository(r *ociregistry.Server, name string, change ...func(*sourcev1.OCIRepositorySpec)) {
	s.Helper()
	o := &sourcev1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: sourcev1.OCIRepositorySpec{URL: r.OCI + "/" + name, Interval: meta.Duration{Duration: time.Hour},
			Insecure: r.CA == nil},
	}
	for _, c := range change {
		c(&o.Spec)
	}
	s.Create(o)
}

// OCIRepositoryReady waits until an OCIRepository is Ready at a digest with its last request handled, and returns it.
func (s *System) OCIRepositoryReady(name string, digest name.Digest) *sourcev1.OCIRepository {
	s.Helper()
	o := &sourcev1.OCIRepository{}
	s.eventually(name+" is Ready", func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		asked := o.Annotations[meta.ReconcileRequestAnnotation]
		if !reconcile.IsReady(o) || !o.Status.Artifact.HasRevision("latest@"+digest.DigestStr()) ||
			asked != o.Status.LastHandledReconcileAt {
			return fmt.Errorf("%+v %+v", o.Status.Artifact, o.Status.Conditions)
		}
		return nil
	})
	return o
}

// RequestsSince returns the difference of a registry's request counts to earlier ones.
func RequestsSince(r *ociregistry.Server, before map[string]int64) map[string]int64 {
	diff := map[string]int64{}
	for what, n := range r.Stats() {
		if n -= before[what]; n != 0 && what != "bytesSent" {
			diff[what] = n
		}
	}
	return diff
}

// Archive returns a .tar.gz of files.
func Archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	store, err := artifact.OpenStore(dir, "x", artifact.Retention{TTL: time.Minute, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Put(t.Context(), artifact.Key{Kind: "X", Namespace: "x", Name: "x"}, artifact.FromMap(files),
		"v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, a.Path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ArtifactOutput returns an output of an ArtifactGenerator that copies a path of a source.
func ArtifactOutput(name, from string) extensionsv1beta1.OutputArtifact {
	alias, _, _ := strings.Cut(from, "/")
	return extensionsv1beta1.OutputArtifact{Name: name, OriginRevision: alias,
		Copy: []extensionsv1beta1.CopyOperation{{From: from, To: "@artifact/"}}}
}
