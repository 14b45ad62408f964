package render

import (
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// Prerendered returns a chart with the metadata, the values and the CRDs of original, whose templates yield
// exactly the files of result. Helm's actions then render nothing in this process. It has no schema, because
// the values were checked when result was rendered. The chart shares no memory with original that Helm's
// actions change.
//
// Helm stores the chart with the release. Store original instead: see [Processed].
func Prerendered(original *chart.Chart, result *Result) *chart.Chart {
	out := skeleton(original)
	prefix := original.Name() + "/"
	for _, f := range result.Files {
		name := strings.TrimPrefix(f.Name, prefix)
		out.Templates = append(out.Templates, &common.File{Name: name, Data: []byte(literal(f.Content))})
	}
	return out
}

// CRDs returns the files in the directories crds of a chart and of its dependencies that the values enable.
func CRDs(original *chart.Chart, values map[string]any) ([]chart.CRD, error) {
	ch := skeleton(original)
	if err := chartutil.ProcessDependencies(ch, copyMap(values)); err != nil {
		return nil, err
	}
	return ch.CRDObjects(), nil
}

// literal returns a template that yields text.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{"{{"}}`) }

// skeleton returns a chart and its dependencies with what the actions of Helm need besides templates.
func skeleton(ch *chart.Chart) *chart.Chart {
	out := &chart.Chart{Metadata: copyMetadata(ch.Metadata), Lock: ch.Lock, Values: copyMap(ch.Values),
		ModTime: ch.ModTime}
	for _, f := range ch.Files {
		if strings.HasPrefix(f.Name, "crds/") {
			out.Files = append(out.Files, f)
		}
	}
	for _, sub := range ch.Dependencies() {
		out.AddDependency(skeleton(sub))
	}
	return out
}

// Processed returns what Helm stores of original after an install or upgrade: original with the metadata and the values
// of used, the chart that Helm's action ran with.
func Processed(original, used *chart.Chart) *chart.Chart {
	return &chart.Chart{Raw: original.Raw, Metadata: used.Metadata, Lock: original.Lock, Templates: original.Templates,
		Values: used.Values, Schema: original.Schema, SchemaModTime: original.SchemaModTime, Files: original.Files,
		ModTime: original.ModTime}
}

func copyMetadata(m *chart.Metadata) *chart.Metadata {
	out := *m
	if m.Dependencies != nil {
		out.Dependencies = make([]*chart.Dependency, len(m.Dependencies))
		for i, d := range m.Dependencies {
			if d != nil {
				dependency := *d
				out.Dependencies[i] = &dependency
			}
		}
	}
	return &out
}

func copyMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out, _ := copyValue(m).(map[string]any)
	return out
}

func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = copyValue(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = copyValue(x)
		}
		return out
	}
	return v
}
