package source_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/static"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/source/sourcetest"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// objects is a reader of one Secret and one HelmRepository.
type objects struct {
	secret     corev1.Secret
	repository *sourcev1.HelmRepository
}

func (o *objects) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Secret:
		o.secret.DeepCopyInto(into)
	case *sourcev1.HelmRepository:
		o.repository.DeepCopyInto(into)
	default:
		return fmt.Errorf("unexpected object %T", into)
	}
	return nil
}

func (o *objects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// contract is what the suites of all fetchers share.
type contract struct {
	*testing.T
	objects   *objects
	connector access.Connector
	store     *artifact.Store
}

func newContract(t *testing.T, secret map[string][]byte) *contract {
	t.Helper()
	t.Parallel()
	store, err := artifact.OpenStore(t.TempDir(), "artifacts.example", artifact.Retention{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	o := &objects{secret: corev1.Secret{Data: secret}}
	return &contract{T: t, objects: o,
		connector: access.Connector{Secrets: access.Secrets{Reader: o}, Egress: &egress.Policy{}}, store: store}
}

// meta is the metadata of the object under test.
func (c *contract) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "apps", Name: "app", UID: "1", Generation: 1}
}

// files are version n of the content of a source.
func files(n int) map[string]string {
	return map[string]string{"a.yaml": fmt.Sprintf("version: %d", n), "b.yaml": "unchanged: true"}
}

func TestGitRepositoryContract(t *testing.T) {
	c, server := newContract(t, nil), testenv.NewGit(t)
	sourcetest.Suite[*sourcev1.GitRepository, source.GitRevision]{
		Kind: source.GitRepositoryGroupKind, Store: c.store,
		Fetcher: &source.GitRepository{
			Access: &access.Git{Connector: c.connector}, Objects: c.objects, Store: c.store,
			Mirrors: git.NewMirrors(t.TempDir()), Clock: clock.RealClock{},
		},
		Object: &sourcev1.GitRepository{ObjectMeta: c.meta(), Spec: sourcev1.GitRepositorySpec{
			URL: server.URL + "/app", Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		}},
		Publish: func(n int) { server.Commit("app", files(n)) },
		Fetches: func() int64 { return server.Stats()["fetches"] },
		Stop:    server.Stop,
	}.Run(t)
}

func TestOCIRepositoryContract(t *testing.T) {
	c, server := newContract(t, nil), ociregistry.New(t)
	sourcetest.Suite[*sourcev1.OCIRepository, source.OCIRevision]{
		Kind: source.OCIRepositoryGroupKind, Store: c.store,
		Fetcher: &source.OCIRepository{
			Registries: &access.Registries{Connector: c.connector},
			Signatures: &access.Signatures{Connector: c.connector},
		},
		Object: &sourcev1.OCIRepository{ObjectMeta: c.meta(), Spec: sourcev1.OCIRepositorySpec{
			URL: server.OCI + "/app", Insecure: true,
		}},
		Publish: func(n int) {
			server.Push("app", "latest", nil, static.NewLayer(system.Archive(t, files(n)), system.ContentMediaType))
		},
		Fetches: func() int64 {
			stats := server.Stats()
			return stats["GET manifests"] + stats["GET blobs"]
		},
		Stop: server.Stop,
	}.Run(t)
}

func TestBucketContract(t *testing.T) {
	c := newContract(t, map[string][]byte{
		"accesskey": []byte(s3server.AccessKey), "secretkey": []byte(s3server.SecretKey)})
	server := s3server.New(t)
	sourcetest.Suite[*sourcev1.Bucket, source.BucketRevision]{
		Kind: source.BucketGroupKind, Store: c.store,
		Fetcher: &source.Bucket{Access: &access.Buckets{Connector: c.connector}, Store: c.store, Dir: t.TempDir()},
		Object: &sourcev1.Bucket{ObjectMeta: c.meta(), Spec: sourcev1.BucketSpec{
			Endpoint: server.Endpoint, BucketName: "apps", Insecure: true,
			SecretRef: &meta.LocalObjectReference{Name: "keys"},
		}},
		Publish: func(n int) { server.Put("apps", files(n)) },
		Fetches: func() int64 { return server.Stats()["gets"] },
		Stop:    server.Stop,
	}.Run(t)
}

// charts opens the repositories of a Helm server.
func (c *contract) charts() *source.HelmCharts {
	return &source.HelmCharts{Connector: c.connector, Objects: c.objects, Store: c.store, Limits: helm.DefaultLimits}
}

// helmSecret is the login to a Helm server.
func helmSecret(server *chartrepo.Server) map[string][]byte {
	return map[string][]byte{"username": []byte(chartrepo.User), "password": []byte(chartrepo.Password),
		"ca.crt": server.CA}
}

func (c *contract) helmRepository(server *chartrepo.Server) *sourcev1.HelmRepository {
	return &sourcev1.HelmRepository{ObjectMeta: c.meta(), Spec: sourcev1.HelmRepositorySpec{
		URL: server.URL, SecretRef: &meta.LocalObjectReference{Name: "login"},
	}}
}

// countGets returns a function that counts the successful requests for files with a suffix.
func countGets(server *chartrepo.Server, suffix string) func() int64 {
	var n int64
	return func() int64 {
		for _, request := range server.Requests() {
			if strings.HasSuffix(request, suffix+" 200") {
				n++
			}
		}
		return n
	}
}

func TestHelmRepositoryContract(t *testing.T) {
	server := chartrepo.New(t)
	c := newContract(t, helmSecret(server))
	sourcetest.Suite[*sourcev1.HelmRepository, *source.HelmIndexRevision]{
		Kind: source.HelmRepositoryGroupKind, Store: c.store,
		Fetcher:             &source.HelmRepository{Charts: c.charts()},
		Object:              c.helmRepository(server),
		Publish:             func(n int) { server.Publish(chartrepo.NewChart("app", fmt.Sprintf("1.%d.0", n))) },
		Fetches:             countGets(server, "index.yaml"),
		IsResolvedByContent: true,
		Stop:                server.Stop,
	}.Run(t)
}

func TestHelmChartContract(t *testing.T) {
	server := chartrepo.New(t)
	c := newContract(t, helmSecret(server))
	charts := c.charts()
	c.objects.repository = c.helmRepository(server)
	index := &source.Controller[*sourcev1.HelmRepository, *source.HelmIndexRevision]{
		Kind: source.HelmRepositoryGroupKind, Store: c.store, Fetcher: &source.HelmRepository{Charts: charts}}
	sourcetest.Suite[*sourcev1.HelmChart, *source.HelmChartRevision]{
		Kind: source.HelmChartGroupKind, Store: c.store,
		Fetcher: &source.HelmChart{Objects: c.objects, Secrets: c.connector.Secrets, Charts: charts,
			Artifacts: &artifact.Fetcher{Store: c.store}, Clock: clock.RealClock{}},
		Object: &sourcev1.HelmChart{ObjectMeta: c.meta(), Spec: sourcev1.HelmChartSpec{
			Chart: "app", SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: "HelmRepository", Name: "app"},
		}},
		Publish: func(n int) {
			server.Publish(chartrepo.NewChart("app", fmt.Sprintf("1.%d.0", n)))
			index.Reconcile(t.Context(), &reconcile.Pass[*sourcev1.HelmRepository]{Object: c.objects.repository})
		},
		Fetches: countGets(server, ".tgz"),
		Stop:    server.Stop,
	}.Run(t)
}
