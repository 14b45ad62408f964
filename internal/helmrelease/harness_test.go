package helmrelease_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestMain(m *testing.M) {
	code := system.Main(m)
	renderer.Close()
	os.Exit(code)
}

// releases is a namespace with HelmReleases, of tests with controllers and of those without.
type releases struct{ *system.System }

// harness adds a repository of charts. Its controllers reconcile the HelmReleases. See [steps] for tests without them.
type harness struct {
	releases
	repository *chartrepo.Server
}

func newHarness(t *testing.T, configure ...func(*options.Options)) *harness {
	t.Helper()
	h := prepareHarness(t, configure...)
	h.Start()
	return h
}

// prepareHarness creates everything but the controllers.
func prepareHarness(t *testing.T, configure ...func(*options.Options)) *harness {
	t.Helper()
	return withRepository(t, system.Prepare(t, configure...))
}

// sharedHarness creates a namespace for the controllers that the tests share.
func sharedHarness(t *testing.T) *harness {
	t.Helper()
	return withRepository(t, system.Shared(t))
}

func withRepository(t *testing.T, s *system.System) *harness {
	t.Helper()
	h := &harness{releases{s}, chartrepo.New(t)}
	h.repository.Publish()
	h.HelmRepository(h.repository)
	return h
}

// configTemplate is the template of a ConfigMap with the value color.
const configTemplate = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-config}\n" +
	"data: {k: {{ .Values.color | quote }}}\n"

// archive returns a version of the chart app, with the template of a ConfigMap.
func (h *releases) archive(version string, files map[string]string) []byte {
	h.Helper()
	all := map[string]string{"templates/config.yaml": configTemplate, "values.yaml": "color: red\n"}
	maps.Copy(all, files)
	return testenv.ChartArchive(h, "app", version, all)
}

// publish publishes a version of the chart app, and makes the controllers fetch it.
func (h *harness) publish(version string, files map[string]string) {
	h.Helper()
	h.repository.Write("app-"+version+".tgz", h.archive(version, files))
	h.repository.Publish()
	h.RequestReconcile(&sourcev1.HelmRepository{}, "charts")
}

// release creates a HelmRelease of the chart app.
func (h *releases) release(name string, change ...func(*helmv2.HelmReleaseSpec)) {
	h.Helper()
	r := &helmv2.HelmRelease{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: name},
		Spec: helmv2.HelmReleaseSpec{
			Interval: meta.Duration{Duration: time.Hour}, Timeout: &meta.Duration{Duration: 2 * time.Minute},
			Chart: &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "app",
				SourceRef: &helmv2.SourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"}}},
		},
	}
	for _, c := range change {
		c(&r.Spec)
	}
	h.Create(r)
}

// edit changes the spec of a HelmRelease.
func (h *releases) edit(name string, change func(*helmv2.HelmReleaseSpec)) {
	h.Helper()
	r := &helmv2.HelmRelease{}
	h.Update(r, name, func() { change(&r.Spec) })
}

// values returns a change of spec.values.
func values(v map[string]any) func(*helmv2.HelmReleaseSpec) {
	return func(s *helmv2.HelmReleaseSpec) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // the values are constants
		}
		s.Values = &apiextensionsv1.JSON{Raw: b}
	}
}

// ready waits until a HelmRelease is Ready with a version of the release, and returns it.
func (h *releases) ready(name string, version int) *helmv2.HelmRelease {
	h.Helper()
	r := &helmv2.HelmRelease{}
	testenv.Eventually(h, fmt.Sprintf("%s is Ready with version %d", name, version), func() error {
		if err := h.Get(r, name); err != nil {
			return err
		}
		if !reconcile.IsReady(r) || len(r.Status.History) == 0 || r.Status.History[0].Version != version {
			return fmt.Errorf("%+v %+v", r.Status.Conditions, r.Status.History)
		}
		return nil
	})
	return r
}

// hasCondition waits until a condition of a HelmRelease has a status, a reason and a message that contains a text.
func (h *releases) hasCondition(name, kind string, status metav1.ConditionStatus, reason, message string) {
	h.Helper()
	testenv.Eventually(h, name+" has condition "+kind, func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(r.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", r.Status.Conditions)
		}
		return nil
	})
}

// stored returns the stored releases of a name, newest first.
func (h *releases) stored(name string) []*helmrelease.Release {
	h.Helper()
	history, err := h.driver().History(context.Background(), name)
	if err != nil {
		h.Fatal(err)
	}
	return history
}

// driver returns the storage of the namespace.
func (h *releases) driver() *storage.Driver {
	typed, err := kubernetes.NewForConfig(testenv.Cluster(h))
	if err != nil {
		h.Fatal(err)
	}
	return storage.New(typed.CoreV1().Secrets(h.Namespace))
}

// statuses returns the statuses of the stored releases of a name, newest first.
func (h *releases) statuses(name string) string {
	h.Helper()
	var out []string
	for _, rel := range h.stored(name) {
		out = append(out, fmt.Sprintf("%d %s", rel.Version, rel.Info.Status))
	}
	return strings.Join(out, ", ")
}

// configMap waits until a ConfigMap has a value.
func (h *releases) configMap(name, value string) *corev1.ConfigMap {
	h.Helper()
	h.ConfigMapHas(name, value)
	cm := &corev1.ConfigMap{}
	if err := h.Get(cm, name); err != nil {
		h.Fatal(err)
	}
	return cm
}
