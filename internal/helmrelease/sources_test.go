package helmrelease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

const chartMediaType = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")

// push pushes the chart app 1.0.0 with a value to a registry, and returns its digest.
func (h *harness) push(r *ociregistry.Server, color string) name.Digest {
	h.Helper()
	archive := testenv.ChartArchive(h, "app", "1.0.0", map[string]string{"templates/config.yaml": configTemplate,
		"values.yaml": "color: " + color + "\n"})
	return r.Push("charts/app", "1.0.0", nil, static.NewLayer(archive, chartMediaType))
}

// inRegistry changes a HelmRelease to a chart in a registry.
func inRegistry(r *ociregistry.Server) func(*helmv2.HelmReleaseSpec) {
	return func(s *helmv2.HelmReleaseSpec) {
		s.ChartRef = nil
		s.Chart = &helmv2.HelmChartTemplate{Kind: sourcev1.OCIRepositoryKind, Spec: helmv2.HelmChartTemplateSpec{
			URL: r.OCI + "/charts/app", Insecure: r.CA == nil, Interval: &meta.Duration{Duration: time.Hour},
			Reference: &sourcev1.OCIRepositoryRef{Tag: "1.0.0"},
		}}
	}
}

func TestAChartOfARegistryIsTrackedByItsDigest(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := ociregistry.New(t)
	digest := h.push(r, "red").DigestStr()
	h.release("app", inRegistry(r))
	hr := h.ready("app", 1)
	h.configMap("app-config", "red")
	suffix := strings.TrimPrefix(digest, "sha256:")[:12]
	if s := hr.Status; s.LastAttemptedRevision != "1.0.0+"+suffix || s.LastAttemptedRevisionDigest != digest ||
		s.History[0].OCIDigest != digest || s.History[0].ChartVersion != "1.0.0+"+suffix {
		t.Errorf("the status is %+v", s)
	}
	template := h.Namespace + "-app"
	if want := "OCIRepository/" + h.Namespace + "/" + template; hr.Status.HelmChart != want {
		t.Errorf("status.helmChart is %q, want %q", hr.Status.HelmChart, want)
	}

	h.push(r, "blue") // the same version
	h.RequestReconcile(&sourcev1.OCIRepository{}, template)
	h.ready("app", 2)
	h.configMap("app-config", "blue")

	// The source object of an earlier spec is deleted.
	h.publish("2.0.0", nil)
	h.edit("app", func(s *helmv2.HelmReleaseSpec) {
		s.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "app",
			SourceRef: &helmv2.SourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"}}}
	})
	h.ready("app", 3)
	h.Gone(&sourcev1.OCIRepository{}, template)
}

func TestDigestsOfChartsCanBeIgnored(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *options.Options) {
		o.FeatureGates = map[string]string{"DisableChartDigestTracking": "true"}
	})
	r := ociregistry.New(t)
	h.push(r, "red")
	h.release("app", inRegistry(r))
	if hr := h.ready("app", 1); hr.Status.LastAttemptedRevision != "1.0.0" {
		t.Errorf("the revision is %s", hr.Status.LastAttemptedRevision)
	}
}

// TestEventsOfHelmCharts compares reasons and messages with those of helm-controller.
func TestEventsOfHelmCharts(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.HelmChart("shared")
	h.release("app")
	h.ready("app", 1)
	chart := h.Namespace + "/" + h.Namespace + "-app"
	h.HasEvent("app", "HelmChartCreated",
		"Created HelmChart/"+chart+" with SourceRef 'HelmRepository/"+h.Namespace+"/charts'")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.Chart.Spec.Version = "1.x" })
	h.HasEvent("app", "HelmChartConfigured", "Configured HelmChart/"+chart+" with SourceRef ")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) {
		s.Chart, s.ChartRef = nil, &helmv2.ChartReference{Kind: sourcev1.HelmChartKind, Name: "shared"}
	})
	h.HasEvent("app", "HelmChartDeleted", "deleted HelmChart '"+chart+"'")
}

func TestAChartIsReferenced(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.HelmChart("shared")
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.Chart, s.ChartRef = nil, &helmv2.ChartReference{Kind: sourcev1.HelmChartKind, Name: "shared"}
	})
	hr := h.ready("app", 1)
	h.configMap("app-config", "red")
	if hr.Status.HelmChart != "" {
		t.Errorf("status.helmChart is %q", hr.Status.HelmChart)
	}
	h.publish("1.1.0", map[string]string{"values.yaml": "color: blue\n"})
	h.RequestReconcile(&sourcev1.HelmChart{}, "shared")
	h.ready("app", 2)

	files := map[string]string{}
	for path, content := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: app\nversion: 3.0.0\n",
		"templates/config.yaml": configTemplate, "values.yaml": "color: green\n"} {
		files["charts/app/"+path] = content
	}
	h.Git.Init("repo")
	h.Git.Commit("repo", files)
	h.GitRepository("repo")
	h.HelmChart("built", func(s *sourcev1.HelmChartSpec) {
		s.Chart = "charts/app"
		s.SourceRef = sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.GitRepositoryKind, Name: "repo"}
	})
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.ChartRef.Name = "built" })
	h.ready("app", 3)
	h.configMap("app-config", "green")
}

func TestWhatIsNoChartIsRefused(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	r := ociregistry.New(t)
	r.Push("manifests", "latest", nil, static.NewLayer(archiveOf(t, "a.yaml", "a: 1\n"), "application/gzip"))
	h.OCIRepository(r, "manifests")
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.Chart, s.ChartRef = nil, &helmv2.ChartReference{Kind: sourcev1.OCIRepositoryKind, Name: "manifests"}
	})
	h.NotReady(&helmv2.HelmRelease{}, "app", meta.ArtifactFailedReason, "The source must have Chart.yaml at its "+
		"root or in its only directory")
	h.release("lost", func(s *helmv2.HelmReleaseSpec) {
		s.Chart, s.ChartRef = nil, &helmv2.ChartReference{Kind: sourcev1.OCIRepositoryKind, Name: "missing"}
	})
	h.NotReady(&helmv2.HelmRelease{}, "lost", meta.ArtifactFailedReason, "not found")
}

func TestValuesComeFromConfigMapsAndSecrets(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.Secret("secret", map[string]string{"color": "purple"})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.ValuesFrom = []meta.ValuesReference{{Kind: "ConfigMap", Name: "config"},
			{Kind: "Secret", Name: "secret", ValuesKey: "color", TargetPath: "color"}}
	})
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.ValuesErrorReason, "config")
	cm := &corev1.ConfigMap{Data: map[string]string{"values.yaml": "color: blue\n"}}
	cm.Namespace, cm.Name = h.Namespace, "config"
	h.Create(cm)
	h.reconcile("app")
	h.ready("app", 1)
	h.configMap("app-config", "purple")
}

func archiveOf(t *testing.T, path, content string) []byte {
	t.Helper()
	return testenv.ChartArchive(t, "x", "1.0.0", map[string]string{path: content, "Chart.yaml": "no: chart\n"})
}

// TestChartsOfTwoReleasesAreNotMixed has a HelmChart of the name that a HelmRelease needs, of another HelmRelease. That
// happens when their namespaces and names give the same name, such as 'a' with 'b-c' and 'a-b' with 'c'.
func TestChartsOfTwoReleasesAreNotMixed(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.release("first")
	h.ready("first", 1)
	chart := &sourcev1.HelmChart{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Namespace + "-app",
		Labels: map[string]string{"helm.toolkit.fluxcd.io/name": "first",
			"helm.toolkit.fluxcd.io/namespace": h.Namespace}},
		Spec: sourcev1.HelmChartSpec{Chart: "other", Version: "*", Interval: meta.Duration{Duration: time.Hour},
			SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"}}}
	h.Create(chart)
	h.release("app")
	h.hasCondition("app", "Ready", "False", "ArtifactFailed", "belongs to HelmRelease '"+h.Namespace+"/first'")
	if err := h.Get(chart, chart.Name); err != nil {
		t.Fatal(err)
	}
	if chart.Spec.Chart != "other" {
		t.Errorf("the chart was replaced by %s", chart.Spec.Chart)
	}
}
