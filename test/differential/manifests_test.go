package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// manifests generates the text of a file of manifests, which is odd at times.
func manifests(r *rand.Rand) string {
	var docs []string
	for i := range 1 + r.IntN(3) {
		docs = append(docs, manifest(r, i))
	}
	text := strings.Join(docs, pick(r, "---\n", "---\n", "---\n", "--- # more\n", "---\n---\n", "---\n# note\n---\n"))
	if chance(r, 3) {
		text = "---\n" + text
	}
	if !chance(r, 8) {
		return text
	}
	return pick(r, strings.ReplaceAll(text, "\n", "\r\n"), "\xef\xbb\xbf"+text, text+"...\n", "", "# note\n",
		text+"---\nnull\n", text+"---\n{}\n", text+"---\n[]\n", text+"---\ntext\n", "%YAML 1.1\n---\n"+text,
		text+"\t\n",
		text+"a: b: c\n", strings.TrimRight(text, "\n"), text+"---\n", "---\n...\n---\n"+text, "{{ x }}\n"+text)
}

// manifest generates an object.
func manifest(r *rand.Rand, i int) string {
	name := pick(r, "a", "b", "c", fmt.Sprintf("n%d", i), fmt.Sprintf("n%d", r.IntN(100)), fmt.Sprintf("x%d",
		r.IntN(1000)))
	meta := "metadata:\n  name: " + name + "\n" + pick(r, "", "", "", "", "  namespace: default\n",
		"  namespace: ns1\n",
		"  namespace: ns2\n")
	if chance(r, 8) {
		meta += pick(r, "  labels: {}\n", "  annotations: {}\n", "  labels: null\n", "  annotations: null\n",
			"  labels: {a: b}\n", "  annotations: {a: 'b'}\n", "  annotations: {a: 1, b: true, c: null, d: 1.50}\n",
			"  annotations: {config.kubernetes.io/local-config: 'true'}\n", "  creationTimestamp: null\n",
			"  annotations: {config.kubernetes.io/index: '7', note: x}\n", "  labels: {l: 1}\n",
			"  annotations: {kustomize.config.k8s.io/behavior: merge}\n", "  namespace: null\n", "  namespace: ''\n",
			"  annotations: {internal.config.kubernetes.io/previousNames: z}\n", "  generateName: g-\n",
			"  annotations: {kustomize.config.k8s.io/id: '1', kustomize.config.k8s.io/needs-hash: 'true'}\n",
			"  annotations: {d: 2020-01-01, e: ~, f: [x]}\n", "  name: again\n")
	}
	if chance(r, 25) {
		meta = pick(r, "metadata: {name: 123}\n", "metadata: {}\n", "", "metadata: x\n",
			"metadata: {generateName: x-}\n",
			"metadata: {name: ''}\n", "metadata: {name: null}\n", "metadata: {name: true}\n",
			"metadata: {name: [x]}\n")
	}
	return strings.ReplaceAll(pick(r, objects...), "METADATA\n", meta)
}

// objects are objects of kinds that kustomize treats in different ways.
var objects = []string{
	"apiVersion: v1\nkind: ConfigMap\nMETADATA\ndata: {k: v}\n",
	"apiVersion: v1\nkind: ConfigMap\nMETADATA\ndata:\n  k: |\n    one\n\n    two\n  f: >-\n    a\n    b\n",
	"apiVersion: v1\nkind: ConfigMap\nMETADATA\ndata: {n: 1, b: true, d: 2020-01-01, e: null, f: 1.0, o: 0o17," +
		" h: 0x1F}\n",
	"apiVersion: v1\nkind: ConfigMap\nMETADATA\ndata: &d {a: '1', b: \"2\"}\nbinaryData: *d\n",
	"apiVersion: v1\nkind: ConfigMap\nMETADATA\nx: &x {a: '1', b: '2'}\ndata:\n  <<: *x\n  b: '3'\n",
	"apiVersion: v1\nkind: Secret\nMETADATA\nstringData: {k: v}\ntype: Opaque\n",
	"apiVersion: v1\nkind: Namespace\nMETADATA\n",
	"apiVersion: v1\nkind: ServiceAccount\nMETADATA\n",
	"apiVersion: v1\nkind: Service\nMETADATA\nspec: {selector: {app: x}, ports: [{port: 80}]}\n",
	"apiVersion: apps/v1\nkind: Deployment\nMETADATA\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: x}}\n" +
		"  template:\n    metadata: {labels: {app: x}}\n    spec:\n      serviceAccountName: a\n      containers:\n" +
		"      - name: c\n        image: nginx:1\n        envFrom: [{configMapRef: {name: a}}, {secretRef:" +
		" {name: b}}]\n",
	"apiVersion: apps/v1\nkind: StatefulSet\nMETADATA\nspec: {serviceName: a, template: {spec: {containers: []}}}\n",
	"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nMETADATA\nsubjects: [{kind: ServiceAccount," +
		" name: a}]\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}\n",
	"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nMETADATA\nsubjects:\n" +
		"- {kind: ServiceAccount, name: default, namespace: ns1}\n- {kind: User, name: a}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}\n",
	"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nMETADATA\nrules: [{resources: [secrets]," +
		" resourceNames: [a]}]\n",
	"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nMETADATA\naggregationRule: null\nrules: []\n",
	"apiVersion: networking.k8s.io/v1\nkind: Ingress\nMETADATA\n" +
		"spec: {rules: [{http: {paths: [{backend: {service: {name: a}}}]}}], tls: [{secretName: b}]}\n",
	"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nMETADATA\nspec: {interval: 10m, path: ./x}\n",
	"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nMETADATA\nresources: []\n",
	"apiVersion: example.com/v1\nkind: Widget\nMETADATA\nspec: {size: 1e3, big: 9007199254740993, list: [a, 1," +
		" null]}\n",
	"apiVersion: example.com/v1\nkind: Widget\nMETADATA\nspec: {f: 1.50, e: '', m: {}, l: [], t: 12:30:45, y:" +
		" yes, n: off}\n",
	"apiVersion: example.com/v1\nkind: WidgetList\nMETADATA\nspec: {a: b}\n",
	"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: l1}}\n" +
		"- {apiVersion: v1, kind: Secret, metadata: {name: l2}}\n",
	"apiVersion: v1\nkind: List\nMETADATA\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: l3}\n" +
		"  data: &d {a: \"1\"}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: l4}\n  data: *d\n",
	"apiVersion: v1\nkind: List\nitems: []\n", "apiVersion: v1\nkind: ConfigMapList\nitems: null\n",
	"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, " +
		"metadata: {name: deep}}]}]\n",
	"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n" +
		"spec: {group: example.com, names: {kind: Widget, plural: widgets}, scope: Namespaced}\n",
	"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nMETADATA\n" +
		"webhooks: [{name: w, clientConfig: {service: {name: a, namespace: default}}}]\n",
	"kind: ConfigMap\nMETADATA\n", "apiVersion: v1\nMETADATA\n",
	"apiVersion: v1\nkind: ConfigMap\nMETADATA\ndata: {a: b}\ndata: {a: c}\n",
	"apiVersion: v1\nkind: PersistentVolume\nMETADATA\nspec: {claimRef: {name: a}}\n",
}
