package helmrelease

import (
	"path"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// What the command line shares with the controller, so that both render the same.

// ReleaseName returns the name of the Helm release of a HelmRelease.
func ReleaseName(obj *helmv2.HelmRelease) string { return releaseName(obj) }

// Capabilities returns what templates see of a cluster.
func Capabilities(c *apply.Cluster) (*common.Capabilities, error) {
	return new(served).read(c.Discovery())
}

// Lookup returns the function lookup of templates for a cluster.
func Lookup(c *apply.Cluster) render.Lookup { return lookupIn(&rollout.Target{Cluster: c}) }

// LoadChart returns the chart in the artifact of a source, and its archive for a renderer.
func LoadChart(tree *artifact.Tree) (*chart.Chart, []byte, error) {
	dir, err := chartDir(tree)
	if err != nil {
		return nil, nil, err
	}
	b, err := tree.ReadFile(path.Join(dir, chartFile))
	if err != nil {
		return nil, nil, notAChart(err)
	}
	var head chart.Metadata
	if err := yaml.Unmarshal(b, &head); err != nil {
		return nil, nil, notAChart(err)
	}
	loaded, err := loadChart(tree, chartInfo{name: head.Name, version: head.Version, dir: dir})
	if err != nil {
		return nil, nil, err
	}
	return loaded.chart, loaded.archive, nil
}
