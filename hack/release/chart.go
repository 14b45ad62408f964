package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// chartName is the name of the chart, and of the directory in its archive.
const chartName = "sluice"

// chart writes the Helm chart, pinned to the version and to the digest of the image.
func (r *release) chart(digest string) error {
	version := strings.TrimPrefix(r.version, "v")
	files, err := pinned(filepath.Join(r.checkout.Dir, "charts", chartName), version, map[string]map[string]string{
		"Chart.yaml": {"version: 0.0.0-dev": "version: " + version, "appVersion: latest": "appVersion: " + r.version},
		"values.yaml": {"  repository: ghcr.io/sluice-gitops/sluice": "  repository: " + r.images.String(),
			`  digest: ""`: "  digest: " + digest},
	})
	if err != nil {
		return fmt.Errorf("cannot package the Helm chart: %w", err)
	}
	var out bytes.Buffer
	if err := writeTar(&out, files, r.checkout.Date); err != nil {
		return err
	}
	return r.write(chartName+"-"+version+".tgz", out.Bytes())
}

// pinned returns the files of a chart in the order of their names, with lines replaced. Each line must exist once.
func pinned(dir, version string, lines map[string]map[string]string) ([]file, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	c.Metadata.Version = version
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var files []file
	for _, f := range c.Raw {
		content := string(f.Data)
		for from, to := range lines[f.Name] {
			if n := strings.Count("\n"+content, "\n"+from+"\n"); n != 1 {
				return nil, fmt.Errorf("%s has the line %q %d times, expected once", f.Name, from, n)
			}
			content = strings.Replace("\n"+content, "\n"+from+"\n", "\n"+to+"\n", 1)[1:]
		}
		files = append(files, file{name: chartName + "/" + f.Name, mode: 0o644, content: []byte(content)})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}
