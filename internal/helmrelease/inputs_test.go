package helmrelease_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// version returns a change to a version of the chart app.
func version(v string) func(*helmv2.HelmReleaseSpec) {
	return func(s *helmv2.HelmReleaseSpec) { s.Chart.Spec.Version = v }
}

// TestAHookMayLeaveItsJob has a hook whose Job is only deleted after a success. The Job of a failed attempt must not
// hold the next one.
func TestAHookMayLeaveItsJob(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	hook := strings.Replace(hookTemplate("pre-install,pre-upgrade"), "helm.sh/hook: pre-install,pre-upgrade",
		`helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: hook-succeeded`, 1)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hook})
	h.release("app", values(failing("blue")))
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.InstallFailedReason, "app-hook")
	h.edit("app", values(map[string]any{"color": "blue"}))
	h.ready("app", 2)
	h.configMap("app-config", "blue")
}

// TestValues has what may be wrong with the objects that hold values, and what they may hold.
func TestValues(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "binary"},
		Data: map[string][]byte{"values.yaml": {0xff, 0xfe, 0x00, 0x80}, "color": {'r', 0xff, 0x00}}})
	h.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "binary"},
		BinaryData: map[string][]byte{"values.yaml": {0xff, 0xfe}}})
	h.System.Secret("list", map[string]string{"values.yaml": "- not\n- a map\n"})
	for name, c := range map[string]struct {
		from meta.ValuesReference
		says string
	}{
		"binary-file": {from: meta.ValuesReference{Kind: "Secret", Name: "binary"}, says: "values.yaml"},
		"binary-value": {from: meta.ValuesReference{Kind: "Secret", Name: "binary", ValuesKey: "color",
			TargetPath: "color"}, says: "color"},
		"binary-data": {from: meta.ValuesReference{Kind: "ConfigMap", Name: "binary"}, says: "values.yaml"},
		"list":        {from: meta.ValuesReference{Kind: "Secret", Name: "list"}, says: "values.yaml"},
		"no-key":      {from: meta.ValuesReference{Kind: "Secret", Name: "list", ValuesKey: "none"}, says: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			h := h.in(t)
			h.release(name, func(s *helmv2.HelmReleaseSpec) { s.ValuesFrom = []meta.ValuesReference{c.from} })
			h.NotReady(&helmv2.HelmRelease{}, name, helmv2.ValuesErrorReason, c.says)
		})
	}
}

// TestValuesFromFiles has values in files of a GitRepository, one of them encrypted. Only a change of these files
// upgrades the release.
func TestValuesFromFiles(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	sops := sopskey.New(t)
	h.System.Secret("keys", map[string]string{"age.agekey": sops.PrivateKey})
	files := map[string]string{"envs/prod.yaml": "color: red\n", "README.md": "one",
		"envs/secret.yaml": sops.Encrypt("yaml", "color: hidden-blue\n")}
	from := func(path string) meta.ValuesReference {
		return meta.ValuesReference{Kind: "GitRepository", Name: "site", Path: path}
	}
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.Values, s.ValuesFrom = nil, []meta.ValuesReference{from("./envs/prod.yaml")}
	})
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.ValuesErrorReason, "the GitRepository does not exist")
	h.Git.Commit("site", files)
	h.GitRepository("site")
	h.configMap("app-config", "red")
	digest := h.ready("app", 1).Status.LastAttemptedConfigDigest
	if want := "sha256:" + fmt.Sprintf("%x", sha256.Sum256([]byte("color: red\n"))); digest != want {
		t.Errorf("the digest of the values is %s, want %s", digest, want)
	}
	files["README.md"] = "two"
	h.Git.Commit("site", files)
	h.RequestFetch("site")
	files["envs/prod.yaml"] = "color: green\n"
	h.Git.Commit("site", files)
	h.RequestFetch("site")
	h.configMap("app-config", "green")
	h.ready("app", 2) // the commit between changed no values
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.ValuesFrom = append(s.ValuesFrom, from("envs/secret.yaml")) })
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.ValuesErrorReason,
		"file 'envs/secret.yaml'): the file cannot be read: it is encrypted with SOPS. Set spec.decryption")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) {
		s.Decryption = &meta.Decryption{Provider: "sops", SecretRef: &meta.LocalObjectReference{Name: "keys"}}
	})
	h.configMap("app-config", "hidden-blue")
	h.ready("app", 3)
}

// TestLookupsNeedRights looks up a Secret that the account of the release may not read. The account may do all that the
// release itself needs.
func TestLookupsNeedRights(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	other := testenv.Namespace(t)
	h.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "private"},
		StringData: map[string]string{"password": "hunter2-secret"}})
	h.publish("1.0.0", map[string]string{"templates/x.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\n"+
		"metadata: {name: stolen}\ndata: {k: {{ (lookup \"v1\" \"Secret\" %q \"private\").data | toJson | quote }}}\n",
		other)})
	h.ServiceAccountToken("tenant")
	h.GrantAll("tenant")
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.ServiceAccountName = "tenant" })
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.InstallFailedReason, "forbidden")
	h.Gone(&corev1.ConfigMap{}, "stolen")
}

// TestAReleaseMovesToAnotherStorage changes spec.storageNamespace: the release is uninstalled there and installed here.
func TestAReleaseMovesToAnotherStorage(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.release("app")
	h.ready("app", 1)
	target := testenv.Namespace(t)
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.StorageNamespace = target })
	if s := h.ready("app", 1).Status; s.StorageNamespace != target || len(s.History) != 1 {
		t.Errorf("the release is not stored elsewhere: %+v", s)
	}
	h.configMap("app-config", "red")
	if got := h.statuses("app"); got != "" {
		t.Errorf("releases are still stored: %s", got)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: target, Name: "sh.helm.release.v1.app.v1"}}
	if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Error(err)
	}
}

// TestValuesOfTheLastReleaseArePreserved sets spec.upgrade.preserveValues: values that are no longer declared stay.
func TestValuesOfTheLastReleaseArePreserved(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/other.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: {{ .Release.Name }}-size}\ndata: {k: {{ .Values.size | quote }}}\n"})
	h.release("app", values(map[string]any{"color": "blue", "size": "small"}),
		func(s *helmv2.HelmReleaseSpec) { s.Upgrade = &helmv2.Upgrade{PreserveValues: true} })
	h.ready("app", 1)
	h.edit("app", values(map[string]any{"size": "big"}))
	h.ready("app", 2)
	h.configMap("app-config", "blue")
	h.configMap("app-size", "big")
	h.reconcile("app")
	h.ready("app", 2)
}

// TestTheNameOfAChartMayChange upgrades to a chart of another name: in place, or by an uninstall and an install.
func TestTheNameOfAChartMayChange(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.charts.Publish("web", "1.0.0", testenv.ChartArchive(t, "web", "1.0.0",
		map[string]string{"templates/config.yaml": configTemplate, "values.yaml": "color: green\n"}))
	h.release("in-place", func(s *helmv2.HelmReleaseSpec) {
		s.Upgrade = &helmv2.Upgrade{ChartNameChangeStrategy: helmv2.ChartNameChangeInPlaceUpdate}
	})
	h.release("default")
	h.release("reinstall", func(s *helmv2.HelmReleaseSpec) {
		s.Upgrade = &helmv2.Upgrade{ChartNameChangeStrategy: helmv2.ChartNameChangeReinstall}
	})
	h.ready("in-place", 1)
	h.ready("reinstall", 1)
	h.ready("default", 1)
	kept, gone := h.configMap("in-place-config", "red"), h.configMap("reinstall-config", "red")
	for _, name := range []string{"in-place", "reinstall", "default"} {
		h.edit(name, func(s *helmv2.HelmReleaseSpec) { s.Chart.Spec.Chart = "web" })
	}
	if after := h.configMap("in-place-config", "green"); after.UID != kept.UID {
		t.Error("the object of the release in place was created again")
	}
	if after := h.configMap("reinstall-config", "green"); after.UID == gone.UID {
		t.Error("the release was not installed again")
	}
	h.configMap("default-config", "green")
	h.ready("in-place", 2)
	h.ready("reinstall", 1)
	h.ready("default", 1)
}

// remove deletes an object.
func (h *releases) remove(o client.Object, name string) {
	h.Helper()
	o.SetNamespace(h.Namespace)
	o.SetName(name)
	if err := h.Client.Delete(h.Context(), o); err != nil {
		h.Fatal(err)
	}
}

// TestReleasesInARemoteCluster releases by a kubeconfig, and leaves the release there when the kubeconfig is gone.
func TestReleasesInARemoteCluster(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	raw, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	h.System.Secret("remote", map[string]string{"value": string(raw)})
	remote := func(s *helmv2.HelmReleaseSpec) {
		s.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "remote"}}
	}
	h.release("app", remote, func(s *helmv2.HelmReleaseSpec) {
		s.DriftDetection = &meta.DriftDetection{Mode: meta.DriftEnabled}
	})
	h.release("denied", remote, func(s *helmv2.HelmReleaseSpec) { s.ServiceAccountName = "absent" })
	h.ready("app", 1)
	h.NotReady(&helmv2.HelmRelease{}, "denied", meta.ReconciliationFailedReason, "absent")
	h.Patch(&corev1.ConfigMap{}, "app-config", drifted)
	h.configMap("app-config", "red")
	h.remove(&corev1.Secret{}, "remote")
	h.remove(&helmv2.HelmRelease{}, "app")
	h.Gone(&helmv2.HelmRelease{}, "app")
	h.configMap("app-config", "red")
}

// TestChartsFromArtifactsOfAGenerator releases a chart that an ArtifactGenerator cuts out of a repository.
func TestChartsFromArtifactsOfAGenerator(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.Git.Init("repo")
	h.Git.Commit("repo", map[string]string{"charts/app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"charts/app/templates/config.yaml": configTemplate, "charts/app/values.yaml": "color: green\n"})
	h.GitRepository("repo")
	h.Create(&extensionsv1beta1.ArtifactGenerator{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "cut"},
		Spec: extensionsv1beta1.ArtifactGeneratorSpec{
			Sources: []extensionsv1beta1.SourceReference{
				{Alias: "repo", Kind: sourcev1.GitRepositoryKind, Name: "repo"}},
			Artifacts: []extensionsv1beta1.OutputArtifact{system.ArtifactOutput("app", "@repo/charts/app/**")},
		}})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.Chart, s.ChartRef = nil, &helmv2.ChartReference{Kind: sourcev1.ExternalArtifactKind, Name: "app"}
	})
	r := h.ready("app", 1)
	h.configMap("app-config", "green")
	if v := r.Status.LastAttemptedRevision; !strings.HasPrefix(v, "1.0.0+") {
		t.Errorf("the revision is %s", v)
	}
	h.Git.Commit("repo", map[string]string{"charts/app/values.yaml": "color: gray\n"})
	h.RequestFetch("repo")
	h.ready("app", 2)
	h.configMap("app-config", "gray")
}

// TestDependenciesOfCharts has a chart with a subchart twice under aliases, one of them behind a condition, a library
// chart with a template, and values that are imported from a subchart.
func TestDependenciesOfCharts(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	sub := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-{{ .Chart.Name }}}\n" +
		"data: {k: {{ .Values.level | quote }}}\n"
	h.publish("1.0.0", map[string]string{
		"Chart.yaml": `apiVersion: v2
name: app
version: 1.0.0
dependencies:
- {name: sub, version: 1.x, alias: first, import-values: [{child: exported, parent: imported}]}
- {name: sub, version: 1.x, alias: second, condition: second.enabled}
- {name: lib, version: 1.x}
`,
		"values.yaml":                   "color: red\nsecond: {enabled: false}\nfirst: {level: high}\n",
		"templates/config.yaml":         `{{ include "lib.config" . }}`,
		"charts/sub/Chart.yaml":         "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
		"charts/sub/values.yaml":        "level: low\nexported: {shade: dark}\n",
		"charts/sub/templates/sub.yaml": sub,
		"charts/lib/Chart.yaml":         "apiVersion: v2\nname: lib\nversion: 1.0.0\ntype: library\n",
		"charts/lib/templates/_lib.tpl": `{{ define "lib.config" }}` + strings.Replace(configTemplate,
			".Values.color | quote", ".Values.imported.shade | quote", 1) + `{{ end }}`,
	})
	h.release("app")
	h.ready("app", 1)
	h.configMap("app-config", "dark")
	h.configMap("app-first", "high")
	h.Gone(&corev1.ConfigMap{}, "app-second")
	h.edit("app", values(map[string]any{"second": map[string]any{"enabled": true}}))
	h.ready("app", 2)
	h.configMap("app-second", "low")

	h.publish("2.0.0", map[string]string{"Chart.yaml": "apiVersion: v2\nname: app\nversion: 2.0.0\ntype: library\n"})
	h.release("library", version("2.0.0"))
	h.NotReady(&helmv2.HelmRelease{}, "library", helmv2.InstallFailedReason, "library charts are not installable")
}

// TestTemplatesThatDoNotEnd releases a chart whose templates allocate without end, beside one that renders too much.
func TestTemplatesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	large := `{{ $s := "x" }}{{ range until 26 }}{{ $s = print $s $s }}{{ end }}# {{ $s }}`
	recursive := `{{ define "again" }}{{ include "again" . }}{{ end }}{{ include "again" . }}`
	for name, c := range map[string]struct{ version, template, says string }{
		"large":     {version: "1.0.0", template: large, says: "MiB"},
		"recursive": {version: "1.0.1", template: recursive, says: "again"},
	} {
		t.Run(name, func(t *testing.T) {
			h := h.in(t)
			h.publish(c.version, map[string]string{"templates/x.yaml": c.template})
			h.release(name, version(c.version))
			h.NotReady(&helmv2.HelmRelease{}, name, helmv2.InstallFailedReason, c.says)
		})
	}
	h.publish("1.1.0", nil)
	h.release("app", version("1.1.0"))
	h.ready("app", 1)
}

// TestInvalidSpecReleasesNothing has an error in each part of the spec that only steps after an action would use.
func TestInvalidSpecReleasesNothing(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	for name, c := range map[string]struct {
		change          func(*helmv2.HelmReleaseSpec)
		reason, message string
	}{
		"health": {func(s *helmv2.HelmReleaseSpec) {
			s.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "ex.io/v1", Kind: "MyCR", Current: "has(status)"}}
		}, "InvalidCELExpression", "spec.healthCheckExprs for MyCR"},
		"ready-expr": {func(s *helmv2.HelmReleaseSpec) {
			s.DependsOn = []meta.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "missing"},
				ReadyExpr: "dep.status."}}
		}, "InvalidCELExpression", "readyExpr of dependency"},
		"ignore": {func(s *helmv2.HelmReleaseSpec) {
			s.DriftDetection = &meta.DriftDetection{Mode: meta.DriftEnabled,
				Ignore: []meta.IgnoreRule{{Paths: []string{"spec.replicas"}}}}
		}, "ReconciliationFailed", "is not a JSON pointer"},
	} {
		h.release(name, c.change)
		h.NotReady(&helmv2.HelmRelease{}, name, c.reason, c.message)
		h.hasCondition(name, reconcile.TypeStalled, metav1.ConditionTrue, c.reason, c.message)
		if err := h.Get(&corev1.ConfigMap{}, name+"-config"); !apierrors.IsNotFound(err) || h.statuses(name) != "" {
			t.Errorf("%s: released %q: %v", name, h.statuses(name), err)
		}
	}
}
