package helmrelease

import (
	"context"
	"path"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/postrender"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// What the command line shares with the controller, so that both render the same.

// ReleaseName returns the name of the Helm release of a HelmRelease.
func ReleaseName(obj *helmv2.HelmRelease) string { return releaseName(obj) }

// PostRenderOptions returns what a HelmRelease changes in rendered objects, with a strategy for hooks.
func PostRenderOptions(obj *helmv2.HelmRelease, strategy string) postrender.Options {
	return postrender.Options{PostRenderers: obj.Spec.PostRenderers, CommonMetadata: obj.Spec.CommonMetadata,
		Labels: rollout.OwnerOf(refOf(obj)).Labels(), Strategy: strategy}
}

// Capabilities returns what templates see of a cluster.
func Capabilities(c *apply.Cluster) (*common.Capabilities, error) {
	return new(served).read(c.Discovery())
}

// Lookup returns the function lookup of templates for a cluster.
func Lookup(c *apply.Cluster) render.Lookup {
	return lookupIn(&rollout.Target{Cluster: c}, (*guard.Lease).Release)
}

// ChartSource returns the source object that the controller creates for spec.chart.
func ChartSource(obj *helmv2.HelmRelease) sourcev1.Source { return newTemplate(obj).(sourcev1.Source) }

// LoadChart returns the chart in the artifact of a source, and its archive for a renderer. revision is that of the
// artifact of an OCIRepository or an ExternalArtifact, whose digest becomes part of the version; empty for others.
func LoadChart(ctx context.Context, tree *artifact.Tree, revision string) (*chart.Chart, []byte, error) {
	dir, err := chartDir(tree)
	if err != nil {
		return nil, nil, err
	}
	b, err := tree.ReadFile(path.Join(dir, chartFile))
	if err != nil {
		return nil, nil, notAChart(err)
	}
	head, err := readHead(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	info := chartInfo{name: head.Name, version: head.Version, dir: dir}
	if revision != "" {
		info.version = withDigest(head.Version, digestOf(revision))
	}
	loaded, err := loadChart(ctx, tree, info)
	if err != nil {
		return nil, nil, err
	}
	return loaded.chart, loaded.archive, nil
}
