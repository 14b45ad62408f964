package migrate

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/static"
	helmaction "helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
)

func init() { helmkube.ManagedFieldsManager = "helm-controller" }

// chartFiles has a workload, a hook, a test, a definition and an object of that.
var chartFiles = map[string]string{
	"values.yaml":         "color: red\ntoken: none\n",
	"templates/web.yaml":  chartTemplate,
	"crds/widget.yaml":    widgetDefinition,
	"templates/more.yaml": chartObjects,
}

const widgetDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.release.example.com}
spec:
  group: release.example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const chartObjects = `apiVersion: v1
kind: Secret
metadata: {name: "{{ .Release.Name }}-token"}
stringData: {token: {{ .Values.token | quote }}}
---
apiVersion: release.example.com/v1
kind: Widget
metadata: {name: "{{ .Release.Name }}"}
spec: {size: 3, empty: {}}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}"}
spec: {selector: {app: "{{ .Release.Name }}"}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ .Release.Name }}-hook"
  annotations: {helm.sh/hook: "pre-install,pre-upgrade,post-rollback", helm.sh/hook-weight: "-1"}
data: {revision: "{{ .Release.Revision }}"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: "{{ .Release.Name }}-test"
  annotations: {helm.sh/hook: test, helm.sh/hook-delete-policy: before-hook-creation}
data: {a: b}
`

// chartSource is where a HelmRelease has its chart from.
type chartSource struct {
	chart, kind, name string // of spec.chart; a kind of OCIRepository is referred to by spec.chartRef
}

// chartSources are those of the releases of a team, by their order.
var chartSources = []chartSource{
	{chart: "./charts/app", kind: "GitRepository", name: "fleet"},
	{chart: "app", kind: "HelmRepository", name: "web"},
	{kind: "OCIRepository", name: "app"},
	{chart: "app", kind: "HelmRepository", name: "oci"},
	{chart: "./charts/app", kind: "GitRepository", name: "fleet"},
}

// releaseSpecs are what the releases of a team use, by their order.
func releaseSpecs(name string) []object {
	const patch = "- op: add\n  path: /metadata/annotations\n  value: {note: patched}\n"
	return []object{
		{"driftDetection": object{"mode": "enabled"}},
		{"test": object{"enable": true}},
		{"driftDetection": object{"mode": "warn"}, "valuesFrom": []any{object{"kind": "Secret", "name": "values"}}},
		{"driftDetection": object{"mode": "enabled"}, "postRenderers": []any{object{"kustomize": object{
			"patches": []any{object{"target": object{"kind": "ConfigMap", "name": name}, "patch": patch}}}}}},
		{"commonMetadata": object{"labels": object{"tier": "web"}}, "driftDetection": object{"mode": "enabled",
			"ignore": []any{object{"paths": []any{"/spec/replicas"}, "target": object{"kind": "Deployment"}}}}},
	}
}

// chartRepositories publishes the chart over HTTP and as an OCI artifact.
func (w *world) chartRepositories() {
	w.Helper()
	w.archives["/chart.tgz"] = testenv.ChartArchive(w, "app", "1.0.0", chartFiles)
	c, err := loader.LoadArchive(bytes.NewReader(w.archives["/chart.tgz"]))
	if err != nil {
		w.Fatal(err)
	}
	w.charts = chartrepo.New(w)
	w.charts.Publish(c)
	w.chartDigest = w.registry.Push("charts/app", "1.0.0", nil, static.NewLayer(w.archives["/chart.tgz"],
		"application/vnd.cncf.helm.chart.content.v1.tar+gzip")).DigestStr()
}

// chartSourcesOf creates the sources of charts, and the Secrets that these and the releases refer to.
func (w *world) chartSourcesOf(team string) {
	w.Helper()
	for name, data := range map[string]map[string]string{
		"login":  {"username": chartrepo.User, "password": chartrepo.Password},
		"ca":     {"ca.crt": string(w.charts.CA)},
		"values": {"values.yaml": "color: green\ntoken: s3cret\n"},
	} {
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, StringData: data})
	}
	const group = "source.toolkit.fluxcd.io/v1"
	w.put("source-controller", group, "HelmRepository", team, "web",
		object{"interval": "1h", "url": w.charts.URL, "secretRef": object{"name": "login"},
			"certSecretRef": object{"name": "ca"}},
		ready("Succeeded", "stored artifact", object{"artifact": w.artifact("/chart.tgz", "sha256:1")}))
	w.put("source-controller", group, "OCIRepository", team, "app",
		object{"interval": "1h", "insecure": true, "url": w.registry.OCI + "/charts/app", "ref": object{"tag": "1.0.0"},
			"layerSelector": object{"operation": "copy",
				"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip"}},
		ready("Succeeded", "stored artifact", object{"artifact": w.artifact("/chart.tgz", "1.0.0@"+w.chartDigest)}))
}

// release creates the n-th HelmRelease of a team with its HelmChart, as helm-controller leaves them.
func (w *world) release(team string, n int) {
	w.Helper()
	name := fmt.Sprintf("release-%d", n)
	from := chartSources[n]
	spec := object{"interval": "1h", "values": object{"color": "blue"}}
	maps.Copy(spec, releaseSpecs(name)[n])
	if from.kind == "OCIRepository" {
		spec["chartRef"] = object{"kind": from.kind, "name": from.name}
	} else {
		ref := object{"kind": from.kind, "name": from.name}
		spec["chart"] = object{"spec": object{"chart": from.chart, "sourceRef": ref}}
		w.put("source-controller", "source.toolkit.fluxcd.io/v1", "HelmChart", team, team+"-"+name,
			object{"interval": "1h0m0s", "chart": from.chart, "version": "*", "reconcileStrategy": "ChartVersion",
				"sourceRef": ref},
			ready("ChartPackageSucceeded", "packaged 'app' chart with version '1.0.0'",
				object{"artifact": w.artifact("/chart.tgz", "1.0.0"), "observedChartName": "app"}))
	}
	var status object
	if !w.runsFlux() {
		status = w.releaseAsFlux(team, name, spec)
	}
	w.put("helm-controller", "helm.toolkit.fluxcd.io/v2", "HelmRelease", team, name, spec, status)
}

// releaseAsFlux installs a release as helm-controller does, and returns the status that it writes.
func (w *world) releaseAsFlux(team, name string, spec object) object {
	w.Helper()
	c, err := loader.LoadArchive(bytes.NewReader(w.archives["/chart.tgz"]))
	if err != nil {
		w.Fatal(err)
	}
	more, ociDigest := object{"helmChart": team + "/" + team + "-" + name}, ""
	if spec["chartRef"] != nil {
		ociDigest = w.chartDigest
		c.Metadata.Version += "+" + strings.TrimPrefix(ociDigest, "sha256:")[:12]
		more = object{"lastAttemptedRevisionDigest": ociDigest}
	}
	values := object{"color": "blue"}
	if spec["valuesFrom"] != nil {
		values = object{"color": "blue", "token": "s3cret"}
	}
	owner := map[string]string{"helm.toolkit.fluxcd.io/name": name, "helm.toolkit.fluxcd.io/namespace": team}
	renderer := postRenderer{release: name, labels: maps.Clone(owner), patches: spec["postRenderers"] != nil}
	typed := &helmv2.HelmReleaseSpec{}
	if b, err := yaml.Marshal(spec); err != nil || yaml.Unmarshal(b, typed) != nil {
		w.Fatal(err)
	}
	if m := typed.CommonMetadata; m != nil {
		maps.Copy(renderer.labels, m.Labels)
		more["observedCommonMetadataDigest"] = digest.CommonMetadata(m)
	}
	if typed.PostRenderers != nil {
		more["observedPostRenderersDigest"] = digest.PostRenderers(typed.PostRenderers)
	}
	w.installDefinition(owner)
	rel := w.install(team, name, c, values, spec["test"] != nil, renderer)
	snapshot := object{
		"digest": digest.Release(rel, ociDigest), "name": name, "namespace": team, "version": int64(1),
		"status": "deployed", "chartName": "app", "chartVersion": c.Metadata.Version,
		"configDigest":  digest.Config(values),
		"firstDeployed": rel.Info.FirstDeployed.UTC().Format(time.RFC3339),
		"lastDeployed":  rel.Info.LastDeployed.UTC().Format(time.RFC3339)}
	if ociDigest != "" {
		snapshot["ociDigest"] = ociDigest
	}
	reason, message := "InstallSucceeded", "Helm install succeeded"
	if spec["test"] != nil {
		reason, message = "TestSucceeded", "Helm test succeeded"
		snapshot["testHooks"] = object{name + "-test": object{"phase": "Succeeded",
			"lastStarted": snapshot["lastDeployed"], "lastCompleted": snapshot["lastDeployed"]}}
	}
	maps.Copy(more, object{"storageNamespace": team, "lastAttemptedGeneration": int64(1),
		"lastAttemptedRevision": c.Metadata.Version, "lastAttemptedReleaseAction": "install",
		"lastAttemptedConfigDigest": digest.Config(values), "history": []any{snapshot}})
	return ready(reason, message, more)
}

// installDefinition applies the definition of the chart, as helm-controller does before the first release.
func (w *world) installDefinition(labels map[string]string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(widgetDefinition), &u.Object); err != nil {
		w.Fatal(err)
	}
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(u), u.DeepCopy()); err == nil {
		return // the policy is Create
	}
	u.SetLabels(labels)
	if err := w.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership,
		client.FieldOwner("helm-controller")); err != nil {
		w.Fatal(err)
	}
	w.removeDefinition()
	testenv.Eventually(w, "the definition is served", func() error {
		widgets := &unstructured.UnstructuredList{}
		widgets.SetAPIVersion("release.example.com/v1")
		widgets.SetKind("WidgetList")
		c, err := client.New(testenv.Cluster(w), client.Options{})
		if err != nil {
			return err
		}
		return c.List(w.Context(), widgets)
	})
}

// removeDefinition deletes the definition of the chart when the test ends.
func (w *world) removeDefinition() {
	w.Cleanup(func() {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(definitionKind)
		u.SetName("widgets.release.example.com")
		if err := w.Delete(context.Background(), u); client.IgnoreNotFound(err) != nil {
			w.Error(err)
		}
	})
}

// install installs the chart, and runs its tests.
func (w *world) install(team, name string, c *chart.Chart, values object, test bool,
	renderer postRenderer) *release.Release {
	w.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = ptr.To(testenv.Kubeconfig(w)), ptr.To(team)
	cfg := helmaction.NewConfiguration(helmaction.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(flags, team, "secret"); err != nil {
		w.Fatal(err)
	}
	i := helmaction.NewInstall(cfg)
	i.ReleaseName, i.Namespace, i.WaitStrategy, i.ServerSideApply = name, team, helmkube.HookOnlyStrategy, true
	i.ForceConflicts, i.SkipCRDs, i.PostRenderer = true, true, renderer
	if _, err := i.Run(c, values); err != nil {
		w.Fatal(err)
	}
	if test {
		_, done, err := helmaction.NewReleaseTesting(cfg).Run(name)
		if err != nil {
			w.Fatal(err)
		}
		if err := done(); err != nil {
			w.Fatal(err)
		}
	}
	typed, err := kubernetes.NewForConfig(testenv.Cluster(w))
	if err != nil {
		w.Fatal(err)
	}
	history, err := storage.New(typed.CoreV1().Secrets(team)).History(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	return history[0]
}

// postRenderer adds labels to all objects and hooks, and an annotation to the ConfigMap of the release.
type postRenderer struct {
	release string
	labels  map[string]string
	patches bool
}

// Run implements the interface of Helm's library.
func (p postRenderer) Run(rendered *bytes.Buffer) (*bytes.Buffer, error) {
	out := &bytes.Buffer{}
	for _, doc := range strings.Split(rendered.String(), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return nil, err
		}
		if u.Object == nil {
			continue
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, p.labels)
		u.SetLabels(labels)
		if p.patches && u.GetKind() == "ConfigMap" && u.GetName() == p.release {
			annotations := u.GetAnnotations()
			annotations["note"] = "patched"
			u.SetAnnotations(annotations)
		}
		b, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(b)
	}
	return out, nil
}
