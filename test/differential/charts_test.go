package differential_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	helmaction "helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/postrender"
	"github.com/sluice-gitops/sluice/internal/helm/render"
)

// scalars are values of YAML in all styles, as the value of a key at an indent of four spaces.
var scalars = []string{
	"on", "yes", "no", "OFF", "y", "N", "~", "null", "", "true", "0777", "0o17", "0b11", "0x1F", "1_000", "1:30", ".5",
	"+1", "-0", "1.0", "1.10", "1e3", "1e+06", "1e21", "=", "2024-01-01", "2024-01-01T10:00:00Z", "9007199254740993",
	"-9007199254740993", "9223372036854775807", "1000000", "12345678", "'it''s'", "''", "'on'", "'2024-01-01'", "'1e3'",
	`"\u00e9 \U0001F600"`, `"a\tb\n  c: d\n"`, `"a\r\nb"`, `"\u2028"`, `"line \` + "\n      cont\"", `"---"`,
	`"\n---\n"`,
	`" lead"`, `"trail "`, `"x\n\n"`, "aaa bbb\n      ccc\n\n      ddd", "é 😀",
	"[1, on, {x: 2024-01-01}]", "{}", "[]",
	">\n      bin/init \\\n        --cluster x \\\n        --end\n\n      done",
	">-\n      aaaa\n      bbbb\n       cccc\n      dddd",
	">+\n      a\n\n      b\n\n", ">2\n        a\n      b", "|\n      x\n\n      y", "|+\n      x\n\n      y\n\n",
	"|-\n      # no comment\n      ---x", "|2-\n       lead\n      x", "|\n      trailing   \n      echo \"---\"",
	"!!str 123", "!!str on", "\"" + strings.Repeat("long ", 60) + "\"",
}

// chartCase is a generated template: documents of entries. It is shrunk entry by entry.
type chartCase []generatedObject

type generatedObject struct {
	head    string
	entries []string // lines below data
}

func (c chartCase) text() string {
	var b strings.Builder
	for i, o := range c {
		fmt.Fprintf(&b, "---\napiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: x%d\n%sdata:\n", i, o.head)
		for _, e := range o.entries {
			b.WriteString(e)
		}
		b.WriteString("    last: x\n")
	}
	return b.String()
}

// newChartCase generates a case.
func newChartCase(r *rand.Rand) chartCase {
	var c chartCase
	for range 1 + r.IntN(3) {
		var o generatedObject
		switch r.IntN(4) {
		case 0:
			o.head = "  annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}\n"
		case 1:
			o.head = "  labels: &l {app: x, \"on\": \"yes\"}\n  annotations: *l\n"
		}
		for i := range 1 + r.IntN(8) {
			value := scalars[r.IntN(len(scalars))]
			switch key := fmt.Sprintf("    k%d", i); r.IntN(5) {
			case 0:
				o.entries = append(o.entries, fmt.Sprintf("%s: &a%d\n      v: %s\n%s-alias: *a%d\n", key, i,
					strings.ReplaceAll(value, "\n", "\n  "), key, i))
			case 1:
				o.entries = append(o.entries, fmt.Sprintf("%s: &m%d {x: 1, y: on}\n%s-merge:\n      <<: *m%d\n"+
					"      z: 2\n", key, i, key, i))
			default:
				o.entries = append(o.entries, fmt.Sprintf("%s: %s\n", key, value))
			}
		}
		c = append(c, o)
	}
	return c
}

// shrink returns the smallest case that it finds for which fails is true.
func (c chartCase) shrink(fails func(chartCase) bool) chartCase {
	for changed := true; changed; {
		changed = false
		for i := range c {
			if smaller := slices.Delete(slices.Clone(c), i, i+1); len(smaller) > 0 && fails(smaller) {
				c, changed = smaller, true
				break
			}
			for j := range c[i].entries {
				smaller := slices.Clone(c)
				smaller[i].entries = slices.Delete(slices.Clone(c[i].entries), j, j+1)
				if fails(smaller) {
					c, changed = smaller, true
					break
				}
			}
		}
	}
	return c
}

func chartOf(template string) *chart.Chart {
	return &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "app", Version: "1.0.0"},
		Templates: []*common.File{{Name: "templates/a.yaml", Data: []byte(template)}}}
}

// helmAlone returns the objects that Helm's own template command renders, by kind and name.
func helmAlone(template string) (map[string]any, error) {
	install := helmaction.NewInstall(helmaction.NewConfiguration())
	install.DryRunStrategy, install.ReleaseName, install.Namespace = helmaction.DryRunClient, "app", "team"
	rendered, err := install.Run(chartOf(template), nil)
	if err != nil {
		return nil, err
	}
	rel := rendered.(*release.Release)
	texts := []string{rel.Manifest}
	for _, h := range rel.Hooks {
		texts = append(texts, h.Manifest)
	}
	return objectsOf(texts)
}

// ours returns the objects that the controller hands to Helm.
func ours(t *testing.T, template string, o postrender.Options) (map[string]any, error) {
	values, err := commonutil.ToRenderValues(chartOf(template), nil, common.ReleaseOptions{Name: "app"}, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(chartOf(template), values)
	if err != nil {
		return nil, err
	}
	var files []render.File
	for name, content := range rendered {
		files = append(files, render.File{Name: name, Content: content})
	}
	if files, err = postrender.Change(t.Context(), files, o); err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for _, f := range files {
		byName[f.Name] = f.Content
	}
	hooks, manifests, err := releaseutil.SortManifests(byName, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var manifest strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&manifest, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	texts := []string{manifest.String()}
	for _, h := range hooks {
		texts = append(texts, h.Manifest)
	}
	return objectsOf(texts)
}

// objectsOf decodes manifests as Helm's client does. Items of lists are returned one by one.
func objectsOf(texts []string) (map[string]any, error) {
	objects := map[string]any{}
	for _, text := range texts {
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
		for {
			var raw runtime.RawExtension
			err := decoder.Decode(&raw)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if b := bytes.TrimSpace(raw.Raw); len(b) == 0 || string(b) == "null" {
				continue
			}
			o := &unstructured.Unstructured{}
			if err := o.UnmarshalJSON(raw.Raw); err != nil {
				return nil, err
			}
			add := func(item runtime.Object) error {
				o := item.(*unstructured.Unstructured)
				objects[o.GetKind()+" "+o.GetName()] = withoutMetadata(o)
				return nil
			}
			if !o.IsList() {
				err = add(o)
			} else {
				err = o.EachListItem(add)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// withoutMetadata returns an object without what the post-renderer adds.
func withoutMetadata(o *unstructured.Unstructured) map[string]any {
	for _, field := range []string{"labels", "annotations"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field, "added")
		if m, _, _ := unstructured.NestedMap(o.Object, "metadata", field); len(m) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
	}
	return o.Object
}

// postRenders are what the controller does with each chart: labels always, and kustomize.
func postRenders() map[string]postrender.Options {
	added := map[string]string{"added": "yes"}
	return map[string]postrender.Options{
		"labels": {Labels: added, CommonMetadata: &meta.CommonMetadata{Annotations: added}},
		"images": {Labels: added, PostRenderers: []helmv2.PostRenderer{{Kustomize: &helmv2.Kustomize{
			Images: []meta.Image{{Name: "none", NewTag: "1"}}}}}},
		"patch": {Labels: added, PostRenderers: []helmv2.PostRenderer{{Kustomize: &helmv2.Kustomize{
			Patches: []helmv2.Patch{{Target: &meta.Selector{Kind: "Thing"},
				Patch: `[{"op": "add", "path": "/metadata/annotations/added", "value": "yes"}]`}}}}}},
		"merge": {Labels: added, PostRenderers: []helmv2.PostRenderer{{Kustomize: &helmv2.Kustomize{
			Patches: []helmv2.Patch{{Target: &meta.Selector{Kind: "Thing"}, Patch: "apiVersion: example.com/v1\n" +
				"kind: Thing\nmetadata: {name: any, annotations: {added: \"yes\"}}\n"}}}}}},
	}
}

// chartDifference returns how our result of a template differs from Helm's; empty if it does not.
func chartDifference(t *testing.T, template string, o postrender.Options) string {
	want, err := helmAlone(template)
	if err != nil {
		return "" // not a chart
	}
	got, err := ours(t, template, o)
	if err != nil {
		return err.Error()
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("got  %#v\nwant %#v", got, want)
	}
	return ""
}

// TestChartsAreRenderedAsByHelm compares what the controller applies of generated charts with what Helm's own template
// renders: with labels and with kustomize as a post-renderer, no value differs.
func TestChartsAreRenderedAsByHelm(t *testing.T) {
	cases := 300
	if os.Getenv("SLUICE_DIFFERENTIAL") == "full" {
		cases = 5000
	}
	for name, o := range postRenders() {
		t.Run(name, func(t *testing.T) {
			for seed := range cases {
				c := newChartCase(rand.New(rand.NewPCG(uint64(seed), 1)))
				if chartDifference(t, c.text(), o) == "" {
					continue
				}
				c = c.shrink(func(c chartCase) bool { return chartDifference(t, c.text(), o) != "" })
				t.Fatalf("seed %d: %s\n%s", seed, c.text(), chartDifference(t, c.text(), o))
			}
		})
	}
}

// TestScalarsOfChartsAreKept has each scalar alone, so that a failure names it.
func TestScalarsOfChartsAreKept(t *testing.T) {
	for name, o := range postRenders() {
		for _, scalar := range scalars {
			c := chartCase{{entries: []string{"    k: " + scalar + "\n"}}}
			if _, err := helmAlone(c.text()); err != nil {
				t.Errorf("%q is not YAML: %v", scalar, err)
			}
			if diff := chartDifference(t, c.text(), o); diff != "" {
				t.Errorf("%s: %q: %s", name, scalar, diff)
			}
		}
	}
}

// TestListsOfChartsAreKept has anchors across the items of a List, and a hook in a list's file.
func TestListsOfChartsAreKept(t *testing.T) {
	text := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n" +
		"  data: &d {a: \"1\"}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b}\n  data: *d\n"
	for name, o := range postRenders() {
		if diff := chartDifference(t, text, o); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
