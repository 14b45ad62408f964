package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// repository generates a tree: a directory that is built, and bases and components that it may refer to. About one part
// in ten is odd, such as a wrong apiVersion or a name that does not exist.
func repository(r *rand.Rand) map[string]string {
	files := map[string]string{}
	g := &layout{r: r, files: files}
	g.directory("lib/one", "")
	g.directory("lib/two", "../one")
	g.component("lib/part")
	g.directory(entry, "../lib/one", "../lib/two", "base")
	if chance(r, 3) {
		g.directory(entry+"/base", "../../lib/one")
	}
	if chance(r, 8) {
		files[entry+"/"+pick(r, "note.txt", "values.json", "extra.yml", ".hidden.yaml")] = pick(r, "text\n", "{}\n", "")
	}
	g.links()
	return files
}

// layout writes files.
type layout struct {
	r     *rand.Rand
	files map[string]string
}

// directory writes a directory with manifests, and usually with a kustomization file that lists them and may list
// others.
func (g *layout) directory(dir string, others ...string) {
	var names []string
	for i := range g.r.IntN(3) {
		name := fmt.Sprintf("m%d.%s", i, pick(g.r, "yaml", "yaml", "yaml", "yml"))
		g.files[dir+"/"+name] = manifests(g.r)
		names = append(names, name)
	}
	if chance(g.r, 5) {
		return
	}
	for _, other := range others {
		if other != "" && chance(g.r, 2) {
			names = append(names, other)
		}
	}
	file := pick(g.r, "kustomization.yaml", "kustomization.yaml", "kustomization.yaml", "kustomization.yml",
		"Kustomization")
	g.files[dir+"/"+file] = head(g.r) + g.list("resources", names) + g.settings(dir)
	if chance(g.r, 25) {
		g.files[dir+"/"+pick(g.r, "kustomization.yml", "Kustomization")] = g.list("resources", names)
	}
}

// list writes a list of names, and changes one of them at times.
func (g *layout) list(field string, names []string) string {
	r := g.r
	if len(names) == 0 && !chance(r, 6) {
		return ""
	}
	if len(names) > 0 && chance(r, 12) {
		i := r.IntN(len(names))
		names[i] = pick(r, "./"+names[i], names[i]+"/", names[i]+"x", names[0], "../app/"+names[i], "", ".",
			"kustomization.yaml")
	}
	if pick(r, field, strings.ToUpper(field[:1])+field[1:], field, field, field) == field {
		return field + ": [" + strings.Join(quoted(names), ", ") + "]\n"
	}
	return field + ":\n- " + strings.Join(quoted(names), "\n- ") + "\n"
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = `"` + n + `"`
	}
	return out
}

// head returns the type of a kustomization file, which may be left out.
func head(r *rand.Rand) string {
	if !chance(r, 5) {
		return pick(r, "", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
			"kind: Kustomization\n", "apiVersion: kustomize.config.k8s.io/v1beta1\n")
	}
	return pick(r, "apiVersion: v1\nkind: Kustomization\n", "apiVersion: kustomize.config.k8s.io/v1\n",
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n", "kind: Component\n", "kind: ConfigMap\n",
		"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: x, namespace: y}\n"+
			"spec: {interval: 1m, path: ./, prune: true}\n",
		"apiVersion: ''\n", "kind: ''\n", "metadata: {name: x}\n", "unknown: x\n", "kind: kustomization\n", "--- \n",
		"apiVersion: null\nkind: null\n", "# note\n---\n", "metadata: {labels: {a: b}}\n")
}

// component writes a component.
func (g *layout) component(dir string) {
	g.files[dir+"/m.yaml"] = manifests(g.r)
	g.files[dir+"/kustomization.yaml"] = pick(g.r,
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n", "kind: Component\n", head(g.r)) +
		g.list("resources", []string{"m.yaml"}) + g.settings(dir)
}

// settings returns other fields of a kustomization file, each rarely.
func (g *layout) settings(dir string) string {
	r := g.r
	if chance(r, 2) {
		return ""
	}
	var out strings.Builder
	for _, field := range settings {
		if chance(r, 10) {
			out.WriteString(field)
		}
	}
	if chance(r, 4) && dir != "lib/part" {
		out.WriteString("components: [" + pick(r, "../lib/part", "../part", "part") + "]\n")
	}
	if chance(r, 8) {
		g.files[dir+"/patch.yaml"] = pick(r, patch, "- {op: add, path: /data, value: {p: q}}\n", "", manifest(r, 0))
		out.WriteString("patches: [{path: patch.yaml" + pick(r, "", ", target: {kind: ConfigMap}") + "}]\n")
	}
	if chance(r, 8) {
		g.files[dir+"/settings.env"] = pick(r, "A=1\nB=two\n", "# note\n\nA=x=y\n", "A\n", "")
		out.WriteString(pick(r, "configMapGenerator", "secretGenerator") + ": [{name: " + pick(r, "env", "a") +
			", envs: [settings.env]" + pick(r, "", ", options: {disableNameSuffixHash: true}") + "}]\n")
	}
	return out.String()
}

const patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {patched: 'yes'}\n"

// settings are fields of kustomization files that need no other file.
var settings = []string{
	"namespace: ns3\n", "namespace: ''\n", "namespace: default\n", "namePrefix: p-\n", "nameSuffix: -s\n",
	"commonLabels: {team: x}\n", "labels: [{pairs: {part: y}, includeSelectors: true}]\n",
	"labels: [{pairs: {part: z}}]\n", "commonAnnotations: {note: '1'}\n", "buildMetadata: [originAnnotations]\n",
	"buildMetadata: [managedByLabel]\n", "buildMetadata: []\n", "images: [{name: nginx, newTag: '2'}]\n",
	"images: [{name: nginx, newTag: 1.10}]\n", "replicas: [{name: a, count: 3}]\n",
	"configMapGenerator: [{name: gen, literals: [a=b]}]\n", "secretGenerator: [{name: gen, literals: [a=b]}]\n",
	"generatorOptions: {disableNameSuffixHash: true}\n", "sortOptions: {order: fifo}\n",
	"sortOptions: {order: legacy}\n", "crds: []\n", "vars: []\n", "unknownField: 1\n", "openapi: {}\n",
	"transformers: []\n", "configurations: []\n", "bases: []\n", "bases: ['../lib/one']\n",
	"patches: [{patch: '[{op: add, path: /metadata/labels, value: {j: k}}]', target: {kind: Deployment}}]\n",
	"patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v2}}'}]\n",
	"replacements: [{source: {kind: ConfigMap, name: a, fieldPath: metadata.name}, targets: [{select: {kind: " +
		"Deployment}, fieldPaths: [spec.template.metadata.labels.from], options: {create: true}}]}]\n",
	"patchesJson6902: [{target: {version: v1, kind: ConfigMap, name: b}, patch: '[{\"op\": \"add\", \"path\": " +
		"\"/data\", \"value\": {\"x\": \"1\"}}]'}]\n",
	"patchesStrategicMerge: ['{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {s: m}}']\n",
}

// links adds symlinks, which artifacts do not have.
func (g *layout) links() {
	if !chance(g.r, 4) {
		return
	}
	g.files[entry+"/link.yaml"] = "symlink:" + pick(g.r, "m0.yaml", "../lib/one/m0.yaml", "nowhere", "/etc/passwd")
	if chance(g.r, 2) {
		g.files[entry+"/linked"] = "symlink:../lib/one"
	}
}
