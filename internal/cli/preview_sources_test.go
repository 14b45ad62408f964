package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/static"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// remoteCharts is a cluster without controllers, whose Kustomization root applies the directory root of GitRepository
// fleet, and hosts with charts.
type remoteCharts struct {
	t         *testing.T
	client    client.Client
	namespace string
	helm      *chartrepo.Server
	registry  *ociregistry.Server
	git       *testenv.Git
}

func newRemoteCharts(t *testing.T) *remoteCharts {
	t.Helper()
	r := &remoteCharts{t: t, helm: chartrepo.New(t), registry: ociregistry.New(t), git: testenv.NewGit(t)}
	r.client, r.namespace = withDefinitions(t)
	for _, version := range []string{"1.0.0", "2.0.0"} {
		c := versionedChart(version)
		r.helm.Publish(c)
		r.registry.Push("charts/app", version, nil, static.NewLayer(chartrepo.Package(t, c),
			"application/vnd.cncf.helm.chart.content.v1.tar+gzip"))
	}
	r.create("login", &corev1.Secret{Data: map[string][]byte{"username": []byte(chartrepo.User),
		"password": []byte(chartrepo.Password)}})
	r.create("ca", &corev1.Secret{Data: map[string][]byte{"ca.crt": r.helm.CA}})
	r.create("charts", &sourcev1.HelmRepository{Spec: sourcev1.HelmRepositorySpec{URL: r.helm.URL,
		SecretRef: &meta.LocalObjectReference{Name: "login"}, CertSecretRef: &meta.LocalObjectReference{Name: "ca"}}})
	r.create("fleet", &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{URL: "https://example.com/fleet"}})
	r.create("built", &sourcev1.OCIRepository{Spec: sourcev1.OCIRepositorySpec{URL: "oci://example.com/built"}})
	root := kustomizev1.KustomizationSpec{Path: "./root", Prune: true, TargetNamespace: r.namespace,
		SourceRef: kustomizev1.SourceReference{Kind: "GitRepository", NamespacedName: meta.NamespacedName{
			Name: "fleet"}}}
	r.create("root", &kustomizev1.Kustomization{Spec: root})
	root.Path, root.SourceRef.Kind, root.SourceRef.Name = "./", "OCIRepository", "built"
	r.create("built", &kustomizev1.Kustomization{Spec: root})
	release := &helmv2.HelmRelease{}
	release.Spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "app", Version: "1.0.0",
		SourceRef: &helmv2.SourceReference{Kind: "HelmRepository", Name: "charts"}}}
	r.create("web", release)
	return r
}

// versionedChart is a chart of a ConfigMap that says the version.
func versionedChart(version string) *chart.Chart {
	c := chartrepo.NewChart("app", version)
	c.Templates = []*common.File{{Name: "templates/c.yaml", Data: []byte("apiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: \"{{ .Release.Name }}\"}\ndata: {chart: \"{{ .Chart.Version }}\", w: " +
		"\"{{ .Values.size.w }}\"}\n")}}
	return c
}

func (r *remoteCharts) create(name string, o client.Object) {
	r.t.Helper()
	o.SetNamespace(r.namespace)
	o.SetName(name)
	if err := r.client.Create(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

// preview previews a change of files. The files before it are those of every test, and more.
func (r *remoteCharts) preview(to map[string]string, args ...string) result {
	r.t.Helper()
	before := map[string]string{
		"root/release.yaml": releaseYAML("web", "version: 1.0.0", "HelmRepository, name: charts"),
		"deploy/app.yaml":   configMap + "\"1\"\n"}
	after := map[string]string{}
	for name, content := range before {
		after[name] = content
	}
	for name, content := range to {
		after[name] = strings.ReplaceAll(content, "NAMESPACE", r.namespace)
	}
	return at(r.t, append([]string{"preview", "--from-dir", write(r.t, before), "--to-dir", write(r.t, after),
		"--source", "GitRepository/" + r.namespace + "/fleet"}, args...)...)
}

func releaseYAML(name, spec, source string) string {
	return fmt.Sprintf("apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: %s}\nspec:\n"+
		"  interval: 1h\n  chart: {spec: {chart: app, %s, sourceRef: {kind: %s}}}\n", name, spec, source)
}

func sourceYAML(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: %s\nmetadata: {name: %s}\nspec: {interval: 1h, "+
		"%s}\n", kind, name, spec)
}

// fetching is a change that refers to something that the cluster does not have.
type fetching struct {
	to   map[string]string
	args []string
	want []string
	not  string
}

func (r *remoteCharts) cases() map[string]fetching {
	kustomization := func(kind string) string {
		return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: new}\n" +
			"spec: {interval: 1h, prune: true, path: ./, targetNamespace: NAMESPACE, sourceRef: {kind: " + kind +
			", name: new}}\n"
	}
	registry := "url: '" + r.registry.OCI
	return map[string]fetching{
		"another version of a chart": {want: []string{"chart: 2.0.0\n", "w: \"1\""}, to: map[string]string{
			"root/release.yaml": releaseYAML("web", "version: 2.x", "HelmRepository, name: charts")}},
		"values files of a chart": {want: []string{"chart: 2.0.0+", "w: \"9\""}, to: map[string]string{
			"root/release.yaml": releaseYAML("web", "version: 2.0.0, valuesFiles: [values.yaml, values-prod.yaml]",
				"HelmRepository, name: charts")}},
		"a chart of a registry": {want: []string{"chart: 2.0.0\n"}, to: map[string]string{
			"root/oci.yaml":     sourceYAML("HelmRepository", "new", "type: oci, insecure: true, "+registry+"/charts'"),
			"root/release.yaml": releaseYAML("web", "version: 2.0.0", "HelmRepository, name: new")}},
		"an OCIRepository as a chart": {want: []string{"chart: 2.0.0+"}, to: map[string]string{
			"root/oci.yaml": sourceYAML("OCIRepository", "new", "insecure: true, ref: {tag: 2.0.0}, layerSelector: "+
				"{mediaType: application/vnd.cncf.helm.chart.content.v1.tar+gzip, operation: copy}, "+registry+
				"/charts/app'"),
			"root/second.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: " +
				"second}\nspec: {interval: 1h, chartRef: {kind: OCIRepository, name: new}}\n"}},
		"manifests of a registry": {want: []string{"at: from a registry"}, to: map[string]string{
			"root/new.yaml": kustomization("OCIRepository") + "---\n" + sourceYAML("OCIRepository", "new",
				"insecure: true, ref: {tag: v1}, "+registry+"/manifests'")}},
		"another git repository": {want: []string{"at: from git"}, to: map[string]string{
			"root/new.yaml": kustomization("GitRepository") + "---\n" + sourceYAML("GitRepository", "new",
				"ref: {branch: main}, sparseCheckout: [app], url: '"+r.git.URL+"/other.git'")}},
		"an artifact that is built of the repository": {want: []string{"at: \"2\""}, to: map[string]string{
			"deploy/app.yaml": configMap + "\"2\"\n"},
			args: []string{"--source", "OCIRepository/" + r.namespace + "/built=deploy"}},
		"included files": {want: []string{"at: from git"}, to: map[string]string{
			"root/new.yaml": sourceYAML("GitRepository", "new", "ref: {branch: main}, url: '"+r.git.URL+"/other.git'"),
			"root/fleet.yaml": sourceYAML("GitRepository", "fleet", "include: [{repository: {name: new}, "+
				"fromPath: app, toPath: root/lib}], url: 'https://example.com/fleet'")}},
		"files that are not checked out": {not: "at: left out", to: map[string]string{
			"root/a.yaml": strings.Replace(configMap, "app", "a", 1) + "left out\n",
			"root/fleet.yaml": sourceYAML("GitRepository", "fleet", "ignore: '/root/a.yaml', sparseCheckout: [root], "+
				"url: 'https://example.com/fleet'")}, want: []string{"GitRepository/" + r.namespace + "/fleet"}},
	}
}

// TestPreviewFetches checks that a preview fetches what a change refers to and the cluster does not have.
func TestPreviewFetches(t *testing.T) {
	r := newRemoteCharts(t)
	r.git.Commit("other", map[string]string{"app/c.yaml": configMap + "\"from git\"\n"})
	manifests := filepath.Join(write(t, map[string]string{"c.yaml": configMap + "\"from a registry\"\n"}))
	at(t, "push", "artifact", r.registry.OCI+"/manifests:v1", "--path", manifests, "--source", "here", "--revision",
		"v1", "--insecure-registry").wants(t, exitOK)
	for name, c := range r.cases() {
		t.Run(name, func(t *testing.T) {
			got := r.preview(c.to, c.args...).wants(t, 1)
			if c.not != "" && strings.Contains(got.out, c.not) {
				t.Errorf("%q in:\n%s%s", c.not, got.out, got.err)
			}
			for _, want := range c.want {
				if !strings.Contains(got.out+got.err, want) {
					t.Errorf("no %q in:\n%s%s", want, got.out, got.err)
				}
			}
		})
	}
	key := client.ObjectKey{Namespace: r.namespace, Name: "built"}
	built := &sourcev1.OCIRepository{}
	if err := r.client.Get(t.Context(), key, built); err != nil {
		t.Fatal(err)
	}
	built.Spec.Suspend = true
	if err := r.client.Update(t.Context(), built); err != nil {
		t.Fatal(err)
	}
	r.preview(map[string]string{"deploy/app.yaml": configMap + "\"2\"\n"}, "--source", "OCIRepository/"+
		r.namespace+"/built=deploy").wants(t, exitOK, "built is suspended: it keeps its files")
	got := r.preview(map[string]string{"root/release.yaml": releaseYAML("web", "version: 3.x",
		"HelmRepository, name: charts")}).wants(t, exitUsage, "1 preview failed")
	if !strings.Contains(got.out, "its chart is not known") || !strings.Contains(got.out, "3.x") {
		t.Errorf("the reason is missing:\n%s", got.out)
	}
}

// TestPreviewKeepsCredentials checks that a change cannot send the credentials of a source to another host.
func TestPreviewKeepsCredentials(t *testing.T) {
	r := newRemoteCharts(t)
	var asked, stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		if req.Header.Get("Authorization") != "" {
			stolen.Add(1)
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(thief.Close)
	login := ", secretRef: {name: login}, passCredentials: true"
	got := r.preview(map[string]string{
		"root/charts.yaml": sourceYAML("HelmRepository", "charts", "url: '"+thief.URL+"'"+login)}).
		wants(t, exitUsage, "1 preview failed")
	if asked.Load() == 0 || stolen.Load() > 0 || strings.Contains(got.out+got.err, chartrepo.Password) {
		t.Errorf("%d requests, %d with the credentials:\n%s%s", asked.Load(), stolen.Load(), got.out, got.err)
	}
	r.preview(map[string]string{
		"root/new.yaml":     sourceYAML("HelmRepository", "new", "url: '"+thief.URL+"'"+login),
		"root/release.yaml": releaseYAML("web", "version: 2.0.0", "HelmRepository, name: new")}).wants(t, exitUsage)
	if stolen.Load() > 0 {
		t.Error("a new HelmRepository got the credentials")
	}
	if err := r.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace,
		Name: "login"}}); err != nil {
		t.Fatal(err)
	}
	got = r.preview(map[string]string{"root/release.yaml": releaseYAML("web", "version: 2.0.0",
		"HelmRepository, name: charts")}).wants(t, exitUsage)
	if !strings.Contains(got.out, "Secret '"+r.namespace+"/login' not found") {
		t.Errorf("the reason is missing:\n%s", got.out)
	}
}

// TestPreviewOfAnEmptiedDirectory shows what an emptied directory would delete, and what has to allow it.
func TestPreviewOfAnEmptiedDirectory(t *testing.T) {
	_, namespace := withControllers(t)
	git := testenv.NewGit(t)
	git.Commit("fleet", map[string]string{"app/a.yaml": configMap + "\"1\"\n", "app/readme.md": "x"})
	at(t, "create", "source", "git", "fleet", "--url", git.URL+"/fleet.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	at(t, "create", "ks", "app", "--source", "GitRepository/fleet", "--path", "./app", "--prune", "--interval", "1h",
		"--target-namespace", namespace, "-n", namespace).wants(t, exitOK)
	git.SetRef("fleet", "refs/heads/next", strings.TrimSpace(git.Run("fleet", "rev-parse", "refs/heads/main")))
	git.CommitTo("fleet", "refs/heads/next", map[string]string{"app/a.yaml": testenv.Delete})
	r := at(t, "preview", "--clone", filepath.Join(git.Root, "fleet.git"), "--from", "main", "--to", "next", "--source",
		"GitRepository/"+namespace+"/fleet")
	for _, want := range []string{"- ConfigMap/" + namespace + "/app deleted", "its build has no objects",
		"kustomize.toolkit.fluxcd.io/allow-empty"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the preview lacks %q:\n%s%s", want, r.out, r.err)
		}
	}
	at(t, "delete", "ks", "app", "--silent", "-n", namespace)
	at(t, "delete", "source", "git", "fleet", "--silent", "-n", namespace)
}
