package render

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
	"text/template"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

// renderChart does, in the child, what an install of Helm does before it talks to the cluster.
func (s server) renderChart(q *wireRequest, archive []byte) (files []File, values []byte, err error) {
	ch, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot load the chart: %w", err)
	}
	if err := s.introduce(ch); err != nil {
		return nil, nil, err
	}
	if t := ch.Metadata.Type; t != "" && t != "application" {
		return nil, nil, fmt.Errorf("%s charts are not installable", t)
	}
	own, err := decodeValues(q.Values)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot decode the values: %w", err)
	}
	if err := chartutil.ProcessDependencies(ch, own); err != nil {
		return nil, nil, fmt.Errorf("chart dependencies processing failed: %w", err)
	}
	capabilities, err := q.capabilities()
	if err != nil {
		return nil, nil, err
	}
	if want := ch.Metadata.KubeVersion; want != "" &&
		!chartutil.IsCompatibleRange(want, capabilities.KubeVersion.String()) {
		return nil, nil, fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s",
			want, capabilities.KubeVersion.Version)
	}
	top, err := q.renderValues(ch, own, capabilities)
	if err != nil {
		return nil, nil, err
	}
	e := engine.Engine{EnableDNS: q.AllowDNS}
	if q.Lookup {
		e.CustomTemplateFuncs = template.FuncMap{"lookup": s.lookup}
	}
	rendered, err := e.RenderWithContext(context.Background(), ch, top) // the parent kills this process to end it
	if err != nil {
		return nil, nil, err
	}
	table, _ := top["Values"].(common.Values)
	if values, err = encodeValues(table); err != nil {
		return nil, nil, fmt.Errorf("cannot encode the values: %w", err)
	}
	return inOrder(rendered), values, nil
}

// introduce tells the parent the name of the chart, for messages about what happens next.
func (s server) introduce(ch *chart.Chart) error {
	if err := s.Send(kindChart, []byte("'"+ch.Metadata.Name+"' "+ch.Metadata.Version)); err != nil {
		return err
	}
	return s.Flush()
}

func (q *wireRequest) capabilities() (*common.Capabilities, error) {
	c := common.DefaultCapabilities.Copy()
	if q.KubeVersion != "" {
		version, err := common.ParseKubeVersion(q.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("the version %q of the cluster is invalid: %w", q.KubeVersion, err)
		}
		c.KubeVersion = *version
	}
	if q.KubeMajor != "" {
		c.KubeVersion.Major, c.KubeVersion.Minor = q.KubeMajor, q.KubeMinor
	}
	if q.APIVersions != nil {
		c.APIVersions = q.APIVersions
	}
	return c, nil
}

// renderValues returns what templates see at the top level.
func (q *wireRequest) renderValues(ch *chart.Chart, own map[string]any, c *common.Capabilities) (common.Values, error) {
	options := common.ReleaseOptions{Name: q.Release.Name, Namespace: q.Release.Namespace, Revision: q.Release.Revision,
		IsInstall: q.Release.IsInstall, IsUpgrade: q.Release.IsUpgrade}
	top, err := commonutil.ToRenderValuesWithSchemaValidation(ch, own, options, c, true)
	if err != nil || q.SkipSchemaValidation {
		return top, err
	}
	table, _ := top["Values"].(common.Values)
	var problems strings.Builder
	if validate(&problems, ch, table); problems.Len() > 0 {
		return nil, fmt.Errorf("values don't meet the specifications of the schema(s) in the following chart(s):\n%s",
			problems.String())
	}
	return top, nil
}

// inOrder returns the files in the order in which the engine renders them: the deepest first.
func inOrder(rendered map[string]string) []File {
	files := make([]File, 0, len(rendered))
	for name, content := range rendered {
		files = append(files, File{Name: name, Content: content})
	}
	sort.Slice(files, func(i, j int) bool {
		a, b := files[i].Name, files[j].Name
		if m, n := strings.Count(a, "/"), strings.Count(b, "/"); m != n {
			return m > n
		}
		return a > b
	})
	return files
}
