package source

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/compose"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// given is a reader of some objects, by type and name.
type given []client.Object

func (g given) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range g {
		if client.ObjectKeyFromObject(o) == key && reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (g given) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "apps", Name: name} }

// wantHint fails the test unless the error ends with the hint.
func wantHint(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), ". "+want) {
		t.Errorf("%s: got %v, want the hint %q", what, err, want)
	}
}

func openStore(t *testing.T) *artifact.Store {
	t.Helper()
	store, err := artifact.OpenStore(t.TempDir(), "artifacts.example", artifact.Retention{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestHintsOfGenerators(t *testing.T) {
	t.Parallel()
	obj := &extensionsv1beta1.ArtifactGenerator{ObjectMeta: named("g")}
	now := metav1.Now()
	deleted := &sourcev1.ExternalArtifact{ObjectMeta: named("a")}
	deleted.DeletionTimestamp = &now
	g := &ArtifactGenerator{NoCrossNamespaceRefs: true, OneNamespace: true, Outputs: Outputs{Reader: given{deleted}}}

	_, outcome := g.source(t.Context(), obj, extensionsv1beta1.SourceReference{Alias: "x", Name: "x",
		Namespace: "other"})
	wantHint(t, "source of another namespace", fmt.Errorf("%s", outcome), "Move it to namespace 'apps', or ask "+
		"whoever runs Sluice with --no-cross-namespace-refs or --watch-all-namespaces=false")
	_, err := (&writers{generator: g, obj: obj}).of(t.Context(), "other")
	wantHint(t, "artifact of another namespace", err, "Remove the field namespace of spec.artifacts")
	_, err = g.Outputs.takeOver(t.Context(), obj, client.ObjectKeyFromObject(deleted))
	wantHint(t, "artifact that is being deleted", err, "It is created again when it is gone")

	n := &managedNamespaces{publication: &publication{ArtifactGenerator: g, obj: obj}}
	err = n.mayManage(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now}})
	wantHint(t, "Namespace that is being deleted", err, "It is created again when it is gone")

	obj.Spec.ManagedNamespaces = &extensionsv1beta1.ManagedNamespaces{}
	obj.Spec.CommonMetadata = &extensionsv1beta1.CommonMetadata{Annotations: map[string]string{
		extensionsv1beta1.ExternalFinalizerAnnotation: "x"}}
	_, err = n.metadata("a")
	wantHint(t, "reserved annotation", err, "Remove it from spec.commonMetadata, spec.managedNamespaces.metadata.from "+
		"or the file in the source")
	obj.Spec.ManagedNamespaces.Metadata = &extensionsv1beta1.NamespaceMetadata{
		FromSource: &extensionsv1beta1.NamespaceMetadataFile{}}
	n.outputs = []compose.Output{{Namespace: "a", Metadata: "x/ns.yaml"}, {Namespace: "a", Metadata: "y/ns.yaml"}}
	_, err = n.metadata("a")
	wantHint(t, "two files for a Namespace", err, "Use only captures in "+
		"spec.managedNamespaces.metadata.fromSource.path that the namespace of the artifact contains")
}

func TestHintsOfIncludes(t *testing.T) {
	t.Parallel()
	obj := &sourcev1.GitRepository{ObjectMeta: named("app")}
	obj.Spec.Include = []sourcev1.GitRepositoryInclude{{GitRepositoryRef: meta.LocalObjectReference{Name: "base"}}}
	g := &GitRepository{Store: openStore(t), Objects: given{&sourcev1.GitRepository{ObjectMeta: named("base")}}}
	_, err := g.included(t.Context(), obj)
	wantHint(t, "included repository without an artifact", err,
		"See its conditions. This object continues when it has an artifact")
	_, err = g.compose(obj, artifact.NewTree(artifact.NewDir(nil), nil), []*meta.Artifact{{Path: "gone.tar.gz"}})
	wantHint(t, "lost artifact", err, "This object continues when the artifact is stored again")
}

func TestHintsOfChartSources(t *testing.T) {
	t.Parallel()
	h := &HelmChart{Objects: given{}}
	obj := &sourcev1.HelmChart{ObjectMeta: named("app")}
	obj.Spec.SourceRef = sourcev1.LocalHelmChartSourceReference{Kind: "HelmRepository", Name: "charts"}
	wantHint(t, "missing source", h.readSource(t.Context(), obj, &sourcev1.HelmRepository{}),
		"Create it, or correct spec.sourceRef")

	server := chartrepo.New(t)
	server.Publish(chartrepo.NewChart("app", "1.0.0"))
	charts := &HelmCharts{Connector: access.Connector{Egress: &egress.Policy{}, Secrets: access.Secrets{
		Reader: given{&corev1.Secret{ObjectMeta: named("login"), Data: map[string][]byte{"ca.crt": server.CA,
			"username": []byte(chartrepo.User), "password": []byte(chartrepo.Password)}}}}},
		Store: openStore(t), Limits: helm.DefaultLimits}
	repository := &sourcev1.HelmRepository{ObjectMeta: named("charts"), Spec: sourcev1.HelmRepositorySpec{
		URL: server.URL, SecretRef: &meta.LocalObjectReference{Name: "login"}}}
	_, err := charts.Open(t.Context(), repository)
	wantHint(t, "repository without an artifact", err,
		"See its conditions. This object continues when it has an artifact")
	repository.Status.Artifact = &meta.Artifact{Path: "gone.yaml", Digest: "sha256:" + strings.Repeat("0", 64)}
	_, err = charts.Open(t.Context(), repository)
	wantHint(t, "lost index", err, "The HelmRepository fetches it again at its next reconciliation")

	fetcher, req := &HelmRepository{Charts: charts}, Request[*sourcev1.HelmRepository]{Object: repository}
	var unchanged *HelmIndexRevision
	for range 2 { // the second answer is that the index has not changed
		if unchanged, err = fetcher.Resolve(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if err := unchanged.Close(); err != nil {
			t.Fatal(err)
		}
	}
	server.Publish(chartrepo.NewChart("app", "2.0.0"))
	_, err = fetcher.Fetch(t.Context(), req, unchanged)
	wantHint(t, "index that changes meanwhile", err, "It is retried automatically")
}

func TestHintOfALostArtifactBehindAClosedGate(t *testing.T) {
	t.Parallel()
	const want = "Open the gates to fetch the current revision"
	obj := &sourcev1.HelmRepository{ObjectMeta: named("charts")}
	previous := &meta.Artifact{Revision: "sha256:1", LastUpdateTime: meta.TimeOf(time.Unix(0, 0))}
	c := &Controller[*sourcev1.HelmRepository, *HelmIndexRevision]{Fetcher: &HelmRepository{}}
	outcome := c.held(t.Context(), &reconcile.Pass[*sourcev1.HelmRepository]{Object: obj},
		Request[*sourcev1.HelmRepository]{Object: obj}, previous, &HelmIndexRevision{digest: "sha256:2"}, nil)
	wantHint(t, "unknown admission", fmt.Errorf("%s", outcome), want)
	err := c.restore(t.Context(), Request[*sourcev1.HelmRepository]{Object: obj}, previous, nil)
	wantHint(t, "revision that cannot be pinned", err, want)
	if f := fault.As(err); f == nil || f.Reason != meta.StorageOperationFailedReason {
		t.Errorf("got %v", err)
	}
}
