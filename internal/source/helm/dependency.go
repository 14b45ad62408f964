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
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxDependencies bounds the charts that one build fetches or loads.
const maxDependencies = 100

// dependencies completes charts of a tree.
type dependencies struct {
	tree    *artifact.Tree
	options Options
	loaded  int
	depth   int
	opened  map[string]Repository // by URL
}

// load reads the chart in a directory and adds the dependencies that it declares and does not bring in
// charts/: in the version of Chart.lock, in the newest one that is admitted where that says none.
func (d *dependencies) load(ctx context.Context, dir string) (*chart.Chart, error) {
	c, err := loadDir(d.tree, dir, d.options.Limits)
	if err != nil {
		return nil, err
	}
	declared, brought := c.Metadata.Dependencies, c.Dependencies()
	var chosen []*chart.Chart
	for _, w := range declared {
		if b := bring(brought, w); b != nil {
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
	// Charts that nothing declares stay; other versions of what is declared go.
	for _, b := range brought {
		if !slices.ContainsFunc(declared, func(w *chart.Dependency) bool { return w.Name == b.Name() }) {
			chosen = append(chosen, b)
		}
	}
	c.SetDependencies(unique(chosen)...)
	return c, nil
}

// unique drops the second of what two aliases share.
func unique(charts []*chart.Chart) []*chart.Chart {
	seen := map[string]bool{}
	return slices.DeleteFunc(charts, func(c *chart.Chart) bool {
		key := c.Name() + " " + c.Metadata.Version
		again := seen[key]
		seen[key] = true
		return again
	})
}

func unresolved(c *chart.Chart, err error) *fault.Fault {
	return fault.New(sourcev1.DependencyBuildErrorReason, "cannot complete the dependencies of chart '%s'", c.Name()).
		Because(err)
}

// bring returns the chart that serves a dependency of those in charts/. Where the dependency names no
// repository, there is no other one to be had, and its range is for who fills charts/.
func bring(brought []*chart.Chart, w *chart.Dependency) *chart.Chart {
	for _, b := range brought {
		if b.Name() == w.Name && admitted(b.Metadata.Version, w.Version) == nil {
			return b
		}
	}
	if i := slices.IndexFunc(brought, func(b *chart.Chart) bool { return b.Name() == w.Name }); i >= 0 &&
		w.Repository == "" {
		return brought[i]
	}
	return nil
}

// admitted checks a version against a dependency's range.
func admitted(version, constraint string) error {
	if constraint == "" || version == constraint {
		return nil
	}
	admits, err := semver.NewConstraint(constraint)
	if err != nil {
		return fmt.Errorf("%q is neither a version nor a range of versions", constraint)
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return fmt.Errorf("%q is no version", version)
	}
	if !admits.Check(v) {
		return fmt.Errorf("version %s is there, which %q does not admit", version, constraint)
	}
	return nil
}

// locked returns a dependency in the version of the chart's lock. What the lock does not name, or in no
// version that the chart still admits, was declared after it: it is had as without a lock.
func locked(c *chart.Chart, w *chart.Dependency) *chart.Dependency {
	if c.Lock == nil {
		return w
	}
	for _, l := range c.Lock.Dependencies {
		if l != nil && l.Name == w.Name && admitted(l.Version, w.Version) == nil {
			return &chart.Dependency{Name: w.Name, Version: l.Version, Repository: w.Repository}
		}
	}
	return w
}

// fetch gets one dependency of the chart in dir.
func (d *dependencies) fetch(ctx context.Context, dir string, w *chart.Dependency) (*chart.Chart, error) {
	if d.loaded++; d.loaded > maxDependencies {
		return nil, fmt.Errorf("there are more than %d", maxDependencies)
	}
	scheme, rest, _ := strings.Cut(w.Repository, "://")
	switch {
	case w.Repository == "":
		return nil, fault.New("", "it is not in charts/, and the dependency names no repository").Final()
	case scheme == "file":
		return d.local(ctx, dir, rest, w)
	case scheme == "http", scheme == "https", scheme == "oci":
		return d.remote(ctx, w)
	default:
		return nil, fault.New("", "its repository '%s' is no URL of file://, http://, https:// or oci://",
			fault.RedactURL(w.Repository)).
			WithHint("Names of repositories are those of a helm client: write the URL").Final()
	}
}

// local loads a chart at a path relative to the one that needs it, inside the tree.
func (d *dependencies) local(ctx context.Context, dir, at string, w *chart.Dependency) (*chart.Chart, error) {
	full := path.Join(dir, at)
	if path.IsAbs(at) || !fs.ValidPath(full) {
		return nil, fault.New("", "the path '%s' leads out of the source", at).Final()
	}
	if d.depth++; d.depth > maxDepth {
		return nil, fault.New("", "charts need each other in a circle, or go deeper than %d", maxDepth).Final()
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
		c, err = loadFile(d.tree, full, d.options.Limits)
	}
	if err != nil {
		return nil, err
	}
	if c.Name() != w.Name {
		return nil, fmt.Errorf("chart '%s' is at '%s'", c.Name(), full)
	}
	return c, admitted(c.Metadata.Version, w.Version)
}

func (d *dependencies) remote(ctx context.Context, w *chart.Dependency) (*chart.Chart, error) {
	repository, err := d.open(ctx, w.Repository)
	if err != nil {
		return nil, err
	}
	offer, err := repository.Find(ctx, w.Name, w.Version)
	if err != nil {
		return nil, err
	}
	data, err := repository.Pull(ctx, offer)
	if err != nil {
		return nil, err
	}
	c, err := load(data, d.options.Limits)
	if err != nil {
		return nil, err
	}
	return c, matches(c, offer)
}

// open returns the repository of a URL, for one build always the same.
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
