package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/localrelease"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// helmReleases previews the HelmReleases that the change reaches.
func (r *run) helmReleases(ctx context.Context, g *graph) error {
	keys := slices.SortedFunc(maps.Keys(g.releases), func(a, b types.NamespacedName) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, key := range keys {
		n := g.releases[key]
		chart, err := r.chartOf(ctx, n.declared)
		if err != nil {
			return err
		}
		byChart := false
		if chart != nil {
			files, err := r.changed(chart.source)
			if err != nil {
				return err
			}
			byChart = files.has(chart.path) && r.isNewChart(chart)
		}
		if !byChart && !n.differs && !n.deleted && !r.usesConfig(key.Namespace, valuesOf(n.declared)...) {
			continue
		}
		owner := newOwner(helmv2.HelmReleaseKind, key)
		owner.inventory = len(rollout.Inventory(n.live.Status.Inventory))
		for _, d := range n.declared.Spec.DependsOn {
			owner.dependsOn = append(owner.dependsOn, newOwner(owner.Kind, types.NamespacedName{
				Namespace: cmp.Or(d.Namespace, key.Namespace), Name: d.Name}).Owner)
		}
		planned, err := r.planRelease(ctx, n, owner, chart)
		if !n.deleted && !n.declared.Spec.Suspend {
			owner.object = n.declared // gates know no commit of a HelmRelease
		}
		owner.add(planned)
		if err != nil {
			owner.Error = redacted(err, owner.secrets)
		}
		r.addOwner(owner)
	}
	return nil
}

// chart is a chart in the repository.
type chart struct {
	source     *source
	path       string
	byRevision bool // each change of its files is a new chart, also with the same version
}

// isNewChart reports whether the source controller makes a new chart of changed files: by default, only if the version
// of the chart changes.
func (r *run) isNewChart(c *chart) bool {
	version := func(side *Snapshot) string {
		tree, err := side.Tree(c.source.ignore)
		if err != nil {
			return ""
		}
		content, err := tree.ReadFile(path.Join(c.path, "Chart.yaml"))
		var metadata struct{ Version string }
		if err != nil || yaml.Unmarshal(content, &metadata) != nil {
			return ""
		}
		return metadata.Version
	}
	from, to := version(r.From), version(r.To)
	return c.byRevision || from == "" || from != to
}

// chartOf returns the chart of a HelmRelease if it is in the repository; nil if it is elsewhere.
func (r *run) chartOf(ctx context.Context, obj *helmv2.HelmRelease) (*chart, error) {
	kind, namespace, name, dir, strategy := "", "", "", "", ""
	switch c := obj.Spec.Chart; {
	case c != nil && c.Spec.SourceRef != nil:
		ref := c.Spec.SourceRef
		kind, namespace, name, dir = ref.Kind, cmp.Or(ref.Namespace, obj.Namespace), ref.Name, c.Spec.Chart
		strategy = c.Spec.ReconcileStrategy
	case obj.Spec.ChartRef != nil && obj.Spec.ChartRef.Kind == "HelmChart" && r.Cluster != nil:
		ref, found := obj.Spec.ChartRef, &sourcev1.HelmChart{}
		key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
		if err := r.Cluster.Client.Get(ctx, key, found); client.IgnoreNotFound(err) != nil {
			r.note("HelmChart '%s' cannot be read: %v", key, err)
		}
		kind, namespace, name = found.Spec.SourceRef.Kind, key.Namespace, found.Spec.SourceRef.Name
		dir, strategy = found.Spec.Chart, found.Spec.ReconcileStrategy
	}
	if s := r.sources[kind+"/"+namespace+"/"+name]; s != nil {
		return &chart{source: s, path: strings.TrimPrefix(path.Clean("/"+dir), "/"),
			byRevision: strategy == "Revision"}, nil
	}
	return nil, nil
}

// planRelease returns what the install, upgrade or uninstall of a HelmRelease would do.
func (r *run) planRelease(ctx context.Context, n *node[*helmv2.HelmRelease], owner *Owner, c *chart) ([]apply.Change,
	error) {
	obj := n.declared.DeepCopy()
	switch {
	case obj.Spec.KubeConfig != nil:
		owner.Note = "releases to another cluster, which is not compared"
		return nil, nil
	case n.deleted && n.live.Spec.Suspend:
		owner.Note = "deleted: its objects stay in the cluster, as it is suspended"
		return nil, nil
	case n.deleted:
		return r.Cluster.Target.Diff(ctx, apply.Request{Owner: localrelease.OwnerOf(n.live), Inspect: true,
			Previous: rollout.Inventory(n.live.Status.Inventory)})
	case obj.Spec.Suspend:
		owner.Note = "suspended: nothing is released until it is resumed"
		return nil, nil
	}
	obj.Status = n.live.Status
	built, err := r.render(ctx, r.To, obj, n, c)
	if err != nil {
		return nil, err
	}
	owner.secrets = built.Secrets
	req, err := built.ApplyRequest(ctx, r.Cluster.Target)
	if err != nil {
		return nil, err
	}
	req.Inspect = true
	return r.Cluster.Target.Diff(ctx, req)
}

var errChartUnknown = errors.New("its new chart has to be fetched by the controllers first, so its objects are not " +
	"compared. Review the chart's changes, or preview with 'sluice diff helmrelease NAME --path CHART'")

// render renders a HelmRelease with the chart of a side, or else with the chart that the cluster has.
func (r *run) render(ctx context.Context, side *Snapshot, obj *helmv2.HelmRelease, n *node[*helmv2.HelmRelease],
	c *chart) (*localrelease.Result, error) {
	options := localrelease.Options{Offline: r.Cluster == nil}
	var access *localrelease.Cluster
	if r.Cluster != nil {
		access = &localrelease.Cluster{Client: r.after.Configs(), Config: r.Cluster.Config, Target: r.Cluster.Target}
	}
	switch {
	case c != nil:
		dir, remove, err := unpackChart(side, c)
		if err != nil {
			return nil, err
		}
		defer remove()
		options.Path = dir
	case r.Cluster == nil:
		return nil, errors.New("its chart is not in the repository, and --offline fetches none")
	case !n.exists || !meta.Equal(obj.Spec.Chart, n.live.Spec.Chart) ||
		!meta.Equal(obj.Spec.ChartRef, n.live.Spec.ChartRef):
		return nil, errChartUnknown
	}
	builder := localrelease.New(options, access, func(m string) { r.note("%s", m) })
	return builder.BuildObject(ctx, obj, n != nil && n.exists)
}

const maxChart = 64 << 20 // bytes

// unpackChart writes a chart of the repository to a temporary directory.
func unpackChart(side *Snapshot, c *chart) (dir string, remove func(), err error) {
	tree, err := side.Tree(c.source.ignore)
	if err != nil {
		return "", nil, err
	}
	if info, err := tree.Stat(c.path); err != nil || !info.IsDir() {
		return "", nil, fmt.Errorf("the repository has no chart in '%s'", c.path)
	}
	if dir, err = os.MkdirTemp("", "sluice-chart-"); err != nil {
		return "", nil, err
	}
	left := int64(maxChart)
	err = fs.WalkDir(tree, c.path, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.FromSlash(c.path), filepath.FromSlash(name))
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		}
		content, err := tree.ReadFile(name)
		if err != nil {
			return err
		}
		if left -= int64(len(content)); left < 0 {
			return fmt.Errorf("the chart is larger than %d bytes", maxChart)
		}
		return os.WriteFile(filepath.Join(dir, rel), content, 0o600)
	})
	remove = func() { _ = os.RemoveAll(dir) }
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("cannot read the chart in '%s': %w", c.path, err)
	}
	return dir, remove, nil
}
