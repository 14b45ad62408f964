package kustomization_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: one, image: nginx:1}, {name: two, image: redis:1}, {name: three, image: busybox:1}]}
`

// settings are the build settings that all versions of the API have.
const settings = `
  interval: 1h
  prune: true
  path: ./app
  sourceRef: {kind: GitRepository, name: app}
  targetNamespace: NS
  commonMetadata: {labels: {team: a}, annotations: {note: text}}
  components: [../comp, ../none]
  ignoreMissingComponents: true
  images:
  - {name: nginx, newName: docker.io/library/nginx, newTag: "2"}
  - {name: redis, digest: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}
  patches:
  - target: {kind: Deployment, labelSelector: tier=front}
    patch: |
      - {op: add, path: /spec/template/metadata/annotations, value: {json: patched}}
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web}
      spec: {template: {spec: {containers: [{name: two, imagePullPolicy: Always}]}}}
`

func TestBuildSettings(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{
		"app/web.yaml": workload, "app/cm.yaml": system.ConfigMap("plain", "1"),
		"comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
			"patches: [{target: {kind: ConfigMap}, patch: '[{\"op\": \"add\", \"path\": \"/data/component\", " +
			"\"value\": \"yes\"}]'}]\n",
	})
	legacy := "  patchesStrategicMerge:\n  - {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: " +
		"{revisionHistoryLimit: 7}}\n" +
		"  patchesJson6902:\n  - target: {version: v1, kind: ConfigMap, name: plain}\n" +
		"    patch: [{op: replace, path: /metadata/name, value: pre-plain-VERSION}]\n" +
		"  - target: {group: apps, version: v1, kind: Deployment, name: web}\n" +
		"    patch: [{op: replace, path: /metadata/name, value: pre-web-VERSION}, {op: add, path: " +
		"/spec/minReadySeconds, value: 5}]\n"
	for version, more := range map[string]string{
		"v1": "  namePrefix: pre-\n  nameSuffix: -v1\n  buildMetadata: [originAnnotations, " +
			"transformerAnnotations]\n",
		"v1beta2": strings.ReplaceAll(legacy, "VERSION", "v1beta2"),
		"v1beta1": strings.ReplaceAll(legacy, "VERSION", "v1beta1"),
	} {
		spec := strings.ReplaceAll(settings, "NS", s.Namespace)
		if version != "v1" { // earlier versions have fewer fields
			spec = strings.Replace(spec, "  components: [../comp, ../none]\n  ignoreMissingComponents: true\n", "", 1)
			spec = strings.Replace(spec, "  commonMetadata: {labels: {team: a}, annotations: {note: text}}\n", "", 1)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("apiVersion: kustomize.toolkit.fluxcd.io/"+version+
			"\nkind: Kustomization\nmetadata: {name: "+version+"}\nspec:"+spec+more), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(s.Namespace)
		s.Create(o)
		s.Pass(version)
		s.Ready(version, commit)
		web := &appsv1.Deployment{}
		if err := s.Get(web, "pre-web-"+version); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(web)
		if err != nil {
			t.Fatal(err)
		}
		checkSettings(t, b, version)
		made := &corev1.ConfigMap{}
		if err := s.Get(made, "pre-plain-"+version); err != nil ||
			(made.Data["component"] == "yes") != (version == "v1") {
			t.Errorf("%s: data of the component: %v, %v", version, made.Data, err)
		}
	}
}

// checkSettings checks the Deployment that was built with the settings of a version of the API.
func checkSettings(t *testing.T, b []byte, version string) {
	t.Helper()
	want := []string{"docker.io/library/nginx:2", "redis@sha256:1111", "busybox:1", `"json":"patched"`,
		`"imagePullPolicy":"Always"`}
	if version == "v1" {
		want = append(want, `"team":"a"`, `"note":"text"`, "config.kubernetes.io/origin",
			"alpha.config.kubernetes.io/transformations")
	} else {
		want = append(want, `"revisionHistoryLimit":7`, `"minReadySeconds":5`)
	}
	for _, w := range want {
		if !strings.Contains(string(b), w) {
			t.Errorf("%s: manifest lacks %s: %s", version, w, b)
		}
	}
}

func TestRefusedBuilds(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{
		"alias/a.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: &a {x: *a}\n",
		"helm/Chart.yaml":         "apiVersion: v2\nname: x\nversion: 1.0.0\n",
		"helm/templates/a.yaml":   "{{- if .Values.x }}\napiVersion: v1\n{{- end }}\n",
		"exec/kustomization.yaml": "generators: [g.yaml]\n",
		"exec/g.yaml": "apiVersion: x/v1\nkind: G\nmetadata: {name: g, annotations: " +
			"{config.kubernetes.io/function: 'exec: {path: /bin/sh}'}}\n",
		"chart/kustomization.yaml":  "helmCharts: [{name: x, repo: 'https://example.com'}]\n",
		"remote/kustomization.yaml": "resources: ['https://github.com/a/b//c?ref=v1']\n",
		"passwd/kustomization.yaml": "secretGenerator: [{name: s, files: [k=../../../../etc/passwd]}]\n",
		"loop/kustomization.yaml":   "resources: [../loop2]\n", "loop2/kustomization.yaml": "resources: [../loop]\n",
		"many/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n",
		"many/b.yaml": system.ConfigMap("twice", "1") + "---\n" + system.ConfigMap("twice", "2"),
		"many/c.yaml": "kind: X\n",
	})
	for name, message := range map[string][]string{
		"alias": {"alias/a.yaml, line 4: ", "the alias *a is recursive"},
		"helm":  {"helm/templates/a.yaml is not valid YAML", "HelmRelease"},
		"exec":  {"would run a program"}, "chart": {"HelmRelease"},
		"passwd": {"reaches out of the source"}, "loop": {"cycle"},
		"many": {"many/a.yaml, line 1: ConfigMap has metadata.generateName", "ConfigMap/twice is declared twice",
			"many/c.yaml, line 1: this is not a Kubernetes object"},
	} {
		s.apply(name, "app", name)
		for _, text := range message {
			s.NotReady(&kustomizev1.Kustomization{}, name, "BuildFailed", text)
		}
	}
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "passwd"); err != nil {
		t.Fatal(err)
	}
	message := fmt.Sprint(apimeta.FindStatusCondition(k.Status.Conditions, "Ready"))
	if strings.Contains(message, "root:") {
		t.Errorf("the message contains a file of the controller: %s", message)
	}
}
