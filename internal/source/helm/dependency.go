package helm

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxDependencies bounds the charts that one build fetches or loads.
const maxDependencies = 100

// dependencies adds missing dependencies to the charts of a tree.
type dependencies struct {
	tree    *artifact.Tree
	options Options
	loaded  int
	depth   int
	opened  map[string]Repository // by URL
}

// load reads the chart in a directory, and adds the declared dependencies that are not in charts/: in the version of
// Chart.lock, or else in the newest version that the declaration allows.
func (d *dependencies) load(ctx context.Context, dir string) (*chart.Chart, error) {
	c, err := loadDir(ctx, d.tree, dir, d.options.Limits)
	if err != nil {
		return nil, err
	}
	declared, bundled := c.Metadata.Dependencies, c.Dependencies()
	var chosen []*chart.Chart
	for _, w := range declared {
		if b := findBundled(bundled, w); b != nil {
			chosen = append(chosen, b)
			continue
		}
		w = locked(c, w)
		add, err := d.fetch(ctx, dir, w)
		if err != nil {
			f := unresolved(c, fmt.Errorf("'%s' %s: %w", w.Name, w.Version, err))
			if cause := fault.As(err); cause != nil {
				f.Terminal, f.RetryAfter = cause.Terminal, cause.RetryAfter
			}
			return nil, f
		}
		chosen = append(chosen, add)
	}
	// Charts that are not declared are kept. Other versions of declared charts are dropped.
	for _, b := range bundled {
		if !slices.ContainsFunc(declared, func(w *chart.Dependency) bool { return w.Name == b.Name() }) {
			chosen = append(chosen, b)
		}
	}
	c.SetDependencies(unique(chosen)...)
	return c, nil
}

// unique drops duplicates, which two aliases of one chart produce.
func unique(charts []*chart.Chart) []*chart.Chart {
	seen := map[string]bool{}
	return slices.DeleteFunc(charts, func(c *chart.Chart) bool {
		key := c.Name() + " " + c.Metadata.Version
		again := seen[key]
		seen[key] = true
		return again
	})
}

// unresolved is the fault of a chart whose dependencies cannot be resolved.
func unresolved(c *chart.Chart, err error) *fault.Fault {
	return fault.New(sourcev1.DependencyBuildErrorReason, "cannot resolve the dependencies of chart '%s'", c.Name()).
		Because(err)
}

// findBundled returns the chart in charts/ that satisfies a dependency, nil if there is none. The version does not
// matter for a dependency without a repository, which is available in charts/ only.
func findBundled(bundled []*chart.Chart, w *chart.Dependency) *chart.Chart {
	for _, b := range bundled {
		if b.Name() == w.Name && allowed(b.Metadata.Version, w.Version) == nil {
			return b
		}
	}
	if i := slices.IndexFunc(bundled, func(b *chart.Chart) bool { return b.Name() == w.Name }); i >= 0 &&
		w.Repository == "" {
		return bundled[i]
	}
	return nil
}

// allowed checks that a version is in the range of a dependency.
func allowed(version, constraint string) error {
	if constraint == "" || version == constraint {
		return nil
	}
	versions, err := semver.NewConstraint(constraint)
	if err != nil {
		return fmt.Errorf("%q is neither a version nor a range of versions", constraint)
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return fmt.Errorf("%q is not a version", version)
	}
	if !versions.Check(v) {
		return fmt.Errorf("the available version %s is not in the range %q", version, constraint)
	}
	return nil
}

// locked returns a dependency with the version from the chart's lock. It returns a dependency unchanged if
// the lock does not contain it, or only in a version that the declaration no longer allows.
func locked(c *chart.Chart, w *chart.Dependency) *chart.Dependency {
	if c.Lock == nil {
		return w
	}
	for _, l := range c.Lock.Dependencies {
		if l != nil && l.Name == w.Name && allowed(l.Version, w.Version) == nil {
			return &chart.Dependency{Name: w.Name, Version: l.Version, Repository: w.Repository}
		}
	}
	return w
}

// fetch returns a dependency of the chart in dir.
func (d *dependencies) fetch(ctx context.Context, dir string, w *chart.Dependency) (*chart.Chart, error) {
	if d.loaded++; d.loaded > maxDependencies {
		return nil, fmt.Errorf("the chart has more than %d dependencies", maxDependencies)
	}
	scheme, rest, _ := strings.Cut(w.Repository, "://")
	switch {
	case w.Repository == "":
		return nil, fault.New("", "the chart is not in charts/, and the dependency has no repository").Final()
	case scheme == "file":
		return d.local(ctx, dir, rest, w)
	case scheme == "http", scheme == "https", scheme == "oci":
		return d.remote(ctx, w)
	default:
		return nil, fault.New("", "the repository '%s' is not a URL with file://, http://, https:// or oci://",
			fault.RedactURL(w.Repository)).
			WithHint("Names of repositories are local to a helm client: use the URL").Final()
	}
}

// local loads a dependency from the tree, at a path relative to the dependent chart.
func (d *dependencies) local(ctx context.Context, dir, at string, w *chart.Dependency) (*chart.Chart, error) {
	full := path.Join(dir, at)
	if path.IsAbs(at) || !fs.ValidPath(full) {
		return nil, fault.New("", "the path '%s' is outside of the source", at).Final()
	}
	if d.depth++; d.depth > maxDepth {
		return nil, fault.New("", "the dependencies form a cycle or are nested deeper than %d", maxDepth).Final()
	}
	defer func() { d.depth-- }()
	info, err := d.tree.Stat(full)
	if err != nil {
		return nil, err
	}
	var c *chart.Chart
	if info.IsDir() {
		c, err = d.load(ctx, full)
	} else {
		c, err = loadFile(ctx, d.tree, full, d.options.Limits)
	}
	if err != nil {
		return nil, err
	}
	if c.Name() != w.Name {
		return nil, fmt.Errorf("the chart at '%s' has the name '%s'", full, c.Name())
	}
	return c, allowed(c.Metadata.Version, w.Version)
}

// remote fetches a dependency from its repository.
func (d *dependencies) remote(ctx context.Context, w *chart.Dependency) (*chart.Chart, error) {
	repository, err := d.open(ctx, w.Repository)
	if err != nil {
		return nil, err
	}
	offer, err := repository.Find(ctx, w.Name, w.Version)
	if f := fault.As(err); f != nil && f.Reason == sourcev1.InvalidChartReferenceReason {
		return nil, f.WithHint("Correct the dependency in Chart.yaml, or publish the version")
	}
	if err != nil {
		return nil, err
	}
	data, err := repository.Pull(ctx, offer)
	if err != nil {
		return nil, err
	}
	c, err := load(ctx, data, d.options.Limits)
	if err != nil {
		return nil, err
	}
	return c, matches(c, offer)
}

// open returns the repository with a URL. Within one build it returns the same one again.
func (d *dependencies) open(ctx context.Context, url string) (Repository, error) {
	if r := d.opened[url]; r != nil {
		return r, nil
	}
	r, err := d.options.Repository(ctx, url)
	if err != nil {
		return nil, err
	}
	if d.opened == nil {
		d.opened = map[string]Repository{}
	}
	d.opened[url] = r
	return r, nil
}
