package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// pulledChart is a packaged chart in a repository.
type pulledChart struct {
	charts     *HelmChart
	repository helm.Repository
	offer      helm.Offer
	trusted    trust
}

// resolveInRepository finds the newest version in a HelmRepository that spec.version allows.
func (h *HelmChart) resolveInRepository(ctx context.Context, obj *sourcev1.HelmChart) (*HelmChartRevision, error) {
	var source sourcev1.HelmRepository
	if err := h.readSource(ctx, obj, &source); err != nil {
		return nil, err
	}
	if source.Spec.Type != sourcev1.HelmRepositoryTypeOCI && source.Status.Artifact == nil && h.Charts.Store != nil {
		return nil, reconcile.WaitingFor(noArtifact(sourcev1.HelmRepositoryKind, source.Namespace, source.Name))
	}
	repository, err := h.Charts.Open(ctx, &source)
	if err != nil {
		return nil, err
	}
	offer, err := repository.Find(ctx, obj.Spec.Chart, obj.Spec.Version)
	if err != nil {
		return nil, err
	}
	r := &HelmChartRevision{
		metadata: valuesMetadata(obj), content: []string{offer.Digest, offer.URL},
		chart: &pulledChart{charts: h, repository: repository, offer: offer},
	}
	if source.Status.Artifact != nil {
		r.source = source.Status.Artifact.Revision
	}
	if err := r.addValuesFiles(ctx, obj, h.tree); err != nil {
		return nil, err
	}
	return r, r.setVersion(offer.Version)
}

// setVersion sets the version, with the metadata.
func (r *HelmChartRevision) setVersion(version string) (err error) {
	r.version, err = helm.WithMetadata(version, r.metadata)
	return In(sourcev1.BuildFailedCondition, err)
}

func (c *pulledChart) name() string { return c.offer.Chart() }

// isCurrent is true only for a chart that is stored as it was pulled: its digest is then that of the repository.
func (c *pulledChart) isCurrent(obj *sourcev1.HelmChart) bool {
	return obj.Spec.Verify == nil && len(valuesFiles(obj)) == 0 && obj.Status.Artifact.Digest == c.offer.Digest
}

func (c *pulledChart) build(ctx context.Context, obj *sourcev1.HelmChart, o helm.Options,
	f *Fetched[*sourcev1.HelmChart]) (*helm.Package, error) {
	data, err := c.repository.Pull(ctx, c.offer)
	if err != nil {
		return nil, err
	}
	if err := c.verify(ctx, obj, data, f); err != nil {
		return nil, err
	}
	return helm.Repackage(ctx, c.offer, data, o)
}

// treeChart is the directory of a chart in the artifact of another source.
type treeChart struct {
	tree       *artifact.Tree
	chartName  string
	byRevision bool // each revision of the source makes a new package, not only each version of the chart
}

// resolveInTree reads the version of a chart from the artifact of a GitRepository or Bucket.
func (h *HelmChart) resolveInTree(ctx context.Context, obj *sourcev1.HelmChart) (*HelmChartRevision, error) {
	var source Object = &sourcev1.GitRepository{}
	if obj.Spec.SourceRef.Kind == sourcev1.BucketKind {
		source = &sourcev1.Bucket{}
	}
	if err := h.readSource(ctx, obj, source); err != nil {
		return nil, err
	}
	a := source.GetArtifact()
	if a == nil {
		return nil, reconcile.WaitingFor(noArtifact(obj.Spec.SourceRef.Kind, obj.Namespace, source.GetName()))
	}
	key := artifact.Key{Kind: obj.Spec.SourceRef.Kind, Namespace: source.GetNamespace(), Name: source.GetName()}
	tree, err := h.Artifacts.Fetch(ctx, key, *a)
	if err != nil {
		return nil, err
	}
	r, err := h.inTree(ctx, obj, tree, a.Revision, h.tree)
	if err != nil {
		return nil, err
	}
	if r.trace = a.Metadata[meta.TraceKey]; obj.Spec.ReconcileStrategy == sourcev1.ReconcileStrategyRevision {
		r.content = []string{a.Revision, a.Digest}
	}
	return r, nil
}

// Package packages the chart of a HelmChart from the tree of a revision of its source, as a pass does. Values files of
// other sources are those of trees.
func (h *HelmChart) Package(ctx context.Context, obj *sourcev1.HelmChart, tree *artifact.Tree, revision string,
	trees Trees) (*helm.Package, error) {
	r, err := h.inTree(ctx, obj, tree, revision, trees)
	if err != nil {
		return nil, err
	}
	return r.chart.build(ctx, obj, h.options(obj, r), nil)
}

// inTree returns the version of the chart in the tree of a revision of its source.
func (h *HelmChart) inTree(ctx context.Context, obj *sourcev1.HelmChart, tree *artifact.Tree,
	revision string, trees Trees) (*HelmChartRevision, error) {
	name, version, err := helm.Describe(ctx, tree, obj.Spec.Chart, h.Charts.Limits)
	if err != nil {
		return nil, err
	}
	chart := &treeChart{tree: tree, chartName: name,
		byRevision: obj.Spec.ReconcileStrategy == sourcev1.ReconcileStrategyRevision}
	r := &HelmChartRevision{metadata: valuesMetadata(obj), source: revision, chart: chart}
	if err := r.addValuesFiles(ctx, obj, trees); err != nil {
		return nil, err
	}
	if chart.byRevision {
		parts := slices.DeleteFunc([]string{shortDigest(revision), r.metadata},
			func(s string) bool { return s == "" })
		r.metadata = strings.Join(parts, ".")
	}
	return r, r.setVersion(version)
}

func (c *treeChart) name() string { return c.chartName }

// isCurrent is true for a package of the same version, though the source may have changed since, unless the object asks
// for a package of each revision.
func (c *treeChart) isCurrent(obj *sourcev1.HelmChart) bool {
	return !c.byRevision && reconcile.IsReady(obj)
}

func (c *treeChart) build(ctx context.Context, obj *sourcev1.HelmChart, o helm.Options,
	_ *Fetched[*sourcev1.HelmChart]) (*helm.Package, error) {
	return helm.BuildTree(ctx, c.tree, obj.Spec.Chart, o)
}

// valuesMetadata is version metadata for a chart with merged values files: each change of the object makes another
// version. It is empty for other charts.
func valuesMetadata(obj *sourcev1.HelmChart) string {
	if len(valuesFiles(obj)) == 0 {
		return ""
	}
	return fmt.Sprint(obj.Generation)
}

// shortDigest returns the first 12 characters of the digest of a revision.
func shortDigest(revision string) string {
	digest := revision[strings.LastIndexByte(revision, ':')+1:]
	return digest[:min(len(digest), 12)]
}
