package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/offline/localrelease"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// chart is where the chart of a HelmRelease comes from.
type chart struct {
	kind    string
	object  sourcev1.Source     // whose artifact is the chart, with the change; nil if it is not known
	chart   *sourcev1.HelmChart // the object, if it is a HelmChart
	source  *source             // that has the files of the chart; nil if it is not this repository
	unknown error               // why the object is not known
}

// chartOf returns where the chart of a HelmRelease comes from.
func (r *run) chartOf(ctx context.Context, obj *helmv2.HelmRelease) (*chart, error) {
	c := &chart{}
	switch ref := obj.Spec.ChartRef; {
	case obj.Spec.Chart != nil:
		c.kind, c.object = obj.Spec.Chart.GetKind(), helmrelease.ChartSource(obj)
	case ref == nil:
		c.unknown = errors.New("neither spec.chart nor spec.chartRef is set")
		return c, nil
	case r.Cluster == nil:
		c.unknown = errors.New("its chart is not in the repository, and --offline fetches none")
		return c, nil
	case ref.Kind != sourcev1.HelmChartKind && r.declared[chartKey(obj)] == nil && r.sources[chartKey(obj)] == nil:
		c.kind = ref.Kind // it is read when it is needed
		return c, nil
	default:
		c.kind = ref.Kind
		c.object, c.unknown = r.reader.Object(ctx, ref.Kind, types.NamespacedName{
			Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name})
	}
	var ok bool
	if c.chart, ok = c.object.(*sourcev1.HelmChart); ok && c.unknown == nil {
		c.source = r.sources[upstream(c.chart)]
		if c.source == nil && r.Cluster == nil {
			c.unknown = errors.New("its chart is not in the repository, and --offline fetches none")
		}
	}
	return c, nil
}

// chartKey returns the object of spec.chartRef as KIND/NAMESPACE/NAME.
func chartKey(obj *helmv2.HelmRelease) string {
	ref := obj.Spec.ChartRef
	return ref.Kind + "/" + cmp.Or(ref.Namespace, obj.Namespace) + "/" + ref.Name
}

// upstream returns the source of a HelmChart as KIND/NAMESPACE/NAME.
func upstream(c *sourcev1.HelmChart) string {
	return c.Spec.SourceRef.Kind + "/" + c.Namespace + "/" + c.Spec.SourceRef.Name
}

// changesChart reports whether the change makes another chart, while the HelmRelease declares the same one: its files
// change, or the object that it comes from does.
func (r *run) changesChart(ctx context.Context, c *chart) (bool, error) {
	switch {
	case c.object == nil:
		return false, nil
	case r.declared[c.kind+"/"+c.object.GetNamespace()+"/"+c.object.GetName()] != nil:
		return true, nil
	case c.chart == nil:
		return false, nil
	}
	if reached, err := r.changesValuesFiles(ctx, c.chart); reached || err != nil {
		return true, err
	}
	if c.source == nil {
		return r.declared[upstream(c.chart)] != nil, nil
	}
	files, err := r.changed(ctx, c.source)
	if err != nil {
		return false, err
	}
	if c.chart.Spec.ReconcileStrategy == sourcev1.ReconcileStrategyRevision {
		return len(files.list) > 0, nil // each revision is another version of the chart
	}
	reached := files.has(helmrelease.InTree(c.chart.Spec.Chart))
	for _, name := range c.chart.GetValuesFiles() {
		reached = reached || files.has(helmrelease.InTree(name))
	}
	if !reached {
		return false, nil
	}
	from, to := r.chartVersion(ctx, r.From, c), r.chartVersion(ctx, r.To, c)
	return from == "" || from != to, nil
}

// chartVersion returns the version of a chart of the repository; empty if it cannot be read.
func (r *run) chartVersion(ctx context.Context, side *Snapshot, c *chart) string {
	tree, err := r.tree(ctx, side, c.source)
	if err != nil {
		return ""
	}
	_, version, err := helm.Describe(ctx, tree, c.chart.Spec.Chart, helm.DefaultLimits)
	if err != nil {
		return ""
	}
	return version
}

// render renders a HelmRelease. A chart in the repository is taken from a side; any other one is that of the cluster,
// if it has the declared one, or else it is fetched.
func (r *run) render(ctx context.Context, side *Snapshot, obj *helmv2.HelmRelease, n *node[*helmv2.HelmRelease],
	c *chart) (*localrelease.Result, error) {
	options := localrelease.Options{Offline: r.Cluster == nil, Renderer: r.renderer, Placeholders: r.placeholders,
		Files: func(ctx context.Context, kind string, key types.NamespacedName) (*artifact.Tree, error) {
			return r.valuesTree(ctx, side, kind, key)
		}}
	var access *localrelease.Cluster
	if r.Cluster != nil {
		target, err := r.Cluster.releaseTarget()
		if err != nil {
			return nil, err
		}
		configs := r.after.Configs()
		if side == r.From {
			configs = r.before.Configs()
		}
		access = &localrelease.Cluster{Client: configs, Config: r.Cluster.Config, Target: target}
	}
	tree, revision, err := r.chartTree(ctx, side, obj, c)
	if err != nil {
		return nil, err
	}
	options.Chart, options.Revision = tree, localrelease.Tracked(c.kind, revision)
	builder := localrelease.New(options, access, func(m string) { r.note("%s", m) })
	return builder.BuildObject(ctx, obj, n != nil && n.exists)
}

// valuesTree returns the files of a source of values: those of a side of the repository, or of the cluster. It is nil
// for another source without a cluster.
func (r *run) valuesTree(ctx context.Context, side *Snapshot, kind string, key types.NamespacedName) (*artifact.Tree,
	error) {
	if s := r.sources[kind+"/"+key.String()]; s != nil {
		return r.tree(ctx, side, s)
	}
	if r.Cluster == nil {
		return nil, nil
	}
	return r.reader.Tree(ctx, kind, key)
}

// changesValues reports whether the change makes other values of a HelmRelease: a file of the repository changes, or
// the object that it comes from does.
func (r *run) changesValues(ctx context.Context, obj *helmv2.HelmRelease) (bool, error) {
	for _, ref := range obj.Spec.ValuesFrom {
		if !ref.IsFile() {
			continue
		}
		namespace := cmp.Or(ref.Namespace, obj.Namespace)
		if reached, err := r.changesFile(ctx, ref.Kind, namespace, ref.Name, ref.Path); reached || err != nil {
			return true, err
		}
	}
	return false, nil
}

// changesValuesFiles reports whether the change makes other values files of a chart, which other sources have.
func (r *run) changesValuesFiles(ctx context.Context, c *sourcev1.HelmChart) (bool, error) {
	for _, name := range c.GetValuesFiles() {
		kind, rest, _ := strings.Cut(name, "://")
		source, file, _ := strings.Cut(rest, "/")
		if reached, err := r.changesFile(ctx, kind, c.Namespace, source, file); reached || err != nil {
			return true, err
		}
	}
	return false, nil
}

// changesFile reports whether the change makes another file of a source: the file changes, or the source does.
func (r *run) changesFile(ctx context.Context, kind, namespace, name, file string) (bool, error) {
	key := kind + "/" + namespace + "/" + name
	s := r.sources[key]
	if s == nil {
		return r.declared[key] != nil, nil
	}
	files, err := r.changed(ctx, s)
	return err == nil && files.has(helmrelease.InTree(file)), err
}

// chartTree returns the files of a chart, and the revision of the source.
func (r *run) chartTree(ctx context.Context, side *Snapshot, obj *helmv2.HelmRelease, c *chart) (
	tree *artifact.Tree, revision string, err error) {
	if c.unknown != nil {
		return nil, "", c.unknown
	}
	object := c.object
	if object == nil {
		ref := obj.Spec.ChartRef
		if object, err = r.reader.Object(ctx, ref.Kind, types.NamespacedName{
			Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}); err != nil {
			return nil, "", err
		}
	}
	if s := r.sources[c.kind+"/"+object.GetNamespace()+"/"+object.GetName()]; s != nil && c.chart == nil {
		tree, err := r.tree(ctx, side, s) // an OCIRepository that is made of the repository
		return tree, "", err
	}
	if c.source != nil && (side == r.To || r.Cluster == nil) {
		return r.packaged(ctx, side, c)
	}
	content, err := r.reader.Read(ctx, c.kind, object)
	switch {
	case err == nil:
		return content.Tree, content.Revision, nil
	case c.source != nil:
		return r.packaged(ctx, side, c)
	}
	return nil, "", fmt.Errorf("its chart is not known, so its objects are not compared: %w. Review the changes of "+
		"the chart, or preview with 'sluice diff helmrelease NAME --path CHART'", err)
}

// packaged packages a chart of the repository.
func (r *run) packaged(ctx context.Context, side *Snapshot, c *chart) (*artifact.Tree, string, error) {
	tree, err := r.tree(ctx, side, c.source)
	if err != nil {
		return nil, "", err
	}
	trees := func(ctx context.Context, kind string, key types.NamespacedName) (*artifact.Tree, error) {
		tree, err := r.valuesTree(ctx, side, kind, key)
		if err == nil && tree == nil {
			err = fmt.Errorf("%s '%s' is not in the repository, and --offline fetches none", kind, key)
		}
		return tree, err
	}
	packed, err := r.reader.Package(ctx, c.chart, tree, side.Revision, trees)
	return packed, "", err
}

func equalCharts(a, b *helmv2.HelmRelease) bool {
	return meta.Equal(a.Spec.Chart, b.Spec.Chart) && meta.Equal(a.Spec.ChartRef, b.Spec.ChartRef)
}
