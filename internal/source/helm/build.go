package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Options are changes to a chart when it is packaged.
type Options struct {
	// Metadata replaces the build metadata of the version, the part after the plus sign, unless it is empty.
	Metadata string
	// ValuesFiles are merged and replace values.yaml; later files take precedence. Paths are relative to the root of
	// the tree, or of the chart if it comes from a repository.
	ValuesFiles []string
	// Files are the contents of values files that are not in the tree, by the names in ValuesFiles.
	Files map[string][]byte
	// IgnoreMissing skips values files that do not exist.
	IgnoreMissing bool
	Limits        Limits
	// Repository returns the repository with the URL of a dependency.
	Repository func(ctx context.Context, url string) (Repository, error)
}

// Package is a packaged chart.
type Package struct {
	Name, Version string
	Data          []byte
	ValuesFiles   []string // the files that were merged
}

// Repackage checks a chart from a repository, and packages it again if the options change it. The output is
// deterministic.
func Repackage(ctx context.Context, offer Offer, data []byte, o Options) (*Package, error) {
	c, err := load(ctx, data, o.Limits)
	if err != nil {
		return nil, fault.New(sourcev1.ChartPullErrorReason, "chart '%s' %s cannot be used", offer.Name, offer.Version).
			Because(err)
	}
	if err := matches(c, offer); err != nil {
		return nil, err
	}
	b := builder{ctx: ctx, chart: c, options: o, data: data,
		read: func(name string) ([]byte, error) { return rawFile(c, name) }}
	return b.build()
}

// matches checks that a chart has the name and the version under which the repository offers it.
func matches(c *chart.Chart, offer Offer) error {
	want, err := semver.NewVersion(offer.Version)
	if err != nil {
		return fault.New(sourcev1.ChartPullErrorReason, "%q is not a version", offer.Version)
	}
	got, err := semver.NewVersion(c.Metadata.Version)
	if err != nil || c.Name() != offer.Chart() || !got.Equal(want) {
		return fault.New(sourcev1.ChartPullErrorReason,
			"the repository returned chart '%.100s' %.100s instead of chart '%s' %s",
			c.Name(), c.Metadata.Version, offer.Name, offer.Version).
			WithHint("The index of the repository is wrong: publish the chart again")
	}
	return nil
}

// rawFile returns a file of a chart.
func rawFile(c *chart.Chart, name string) ([]byte, error) {
	name = path.Clean(name)
	for _, f := range c.Raw {
		if f.Name == name {
			return f.Data, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// Describe returns the name and the version of the chart at a path in a tree: a directory, or a packaged chart.
func Describe(ctx context.Context, tree *artifact.Tree, at string, l Limits) (name, version string, err error) {
	at, err = locate(tree, at)
	if err != nil {
		return "", "", err
	}
	m := &chart.Metadata{}
	if info, err := tree.Stat(at); err == nil && !info.IsDir() {
		c, err := loadFile(ctx, tree, at, l)
		if err != nil {
			return "", "", invalid(at, err)
		}
		return c.Name(), c.Metadata.Version, nil
	}
	text, err := tree.ReadFile(path.Join(at, chartutil.ChartfileName))
	if err != nil {
		return "", "", invalid(at, err)
	}
	lease, err := yamlsize.Acquire(ctx, "reading a chart", text)
	if err == nil {
		defer lease.Release()
		err = yaml.Unmarshal(text, m)
	}
	if err == nil {
		if m.APIVersion == "" {
			m.APIVersion = chart.APIVersionV1
		}
		err = m.Validate()
	}
	if err != nil {
		return "", "", invalid(at, fmt.Errorf("%s: %w", chartutil.ChartfileName, err))
	}
	return m.Name, m.Version, nil
}

// BuildTree packages the chart at a path in a tree, with its dependencies. The output is deterministic.
func BuildTree(ctx context.Context, tree *artifact.Tree, at string, o Options) (*Package, error) {
	at, err := locate(tree, at)
	if err != nil {
		return nil, err
	}
	b := builder{ctx: ctx, options: o, read: func(name string) ([]byte, error) { return readIn(tree, name) }}
	info, err := tree.Stat(at)
	switch {
	case err != nil:
		return nil, invalid(at, err)
	case info.IsDir():
		d := &dependencies{tree: tree, options: o}
		b.chart, err = d.load(ctx, at)
	default:
		if b.chart, err = loadFile(ctx, tree, at, o.Limits); err == nil {
			b.data, err = tree.ReadFile(at)
		}
	}
	if err != nil {
		if fault.As(err) != nil {
			return nil, err
		}
		return nil, invalid(at, err)
	}
	return b.build()
}

// locate validates and cleans the path of a chart.
func locate(tree *artifact.Tree, at string) (string, error) {
	clean := path.Clean(strings.TrimLeft(at, "/"))
	if !fs.ValidPath(clean) {
		return "", fault.New(sourcev1.InvalidChartReferenceReason, "the path '%s' is outside of the source", at).
			WithHint("Correct spec.chart").Final()
	}
	if _, err := tree.Stat(clean); err != nil {
		return "", fault.New(sourcev1.InvalidChartReferenceReason, "no chart found at '%s' in the source", at).
			Because(err).
			WithHint("Correct spec.chart, or check that the source does not ignore the path").Final()
	}
	return clean, nil
}

// invalid is the fault of a chart that cannot be read.
func invalid(at string, err error) error {
	return fault.New(sourcev1.InvalidChartReferenceReason, "the chart at '%s' is invalid", at).
		Because(err).Final()
}

// loadFile reads a packaged chart in a tree.
func loadFile(ctx context.Context, tree *artifact.Tree, at string, l Limits) (*chart.Chart, error) {
	info, err := tree.Stat(at)
	if err == nil && info.Size() > l.Chart {
		err = fmt.Errorf("the package exceeds %d bytes", l.Chart)
	}
	if err != nil {
		return nil, err
	}
	data, err := tree.ReadFile(at)
	if err != nil {
		return nil, err
	}
	return load(ctx, data, l)
}

// readIn reads a file in a tree.
func readIn(tree *artifact.Tree, name string) ([]byte, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if !fs.ValidPath(clean) {
		return nil, errors.New("the path is outside of the source")
	}
	return tree.ReadFile(clean)
}

// builder packages one chart.
type builder struct {
	ctx     context.Context
	chart   *chart.Chart
	options Options
	data    []byte // the original package; nil for a directory
	read    func(name string) ([]byte, error)
}

// build merges the values, sets the metadata, and packages the chart unless nothing changed.
func (b *builder) build() (*Package, error) {
	merged, err := b.mergeValues()
	if err != nil {
		return nil, err
	}
	c := b.chart
	if c.Metadata.Version, err = WithMetadata(c.Metadata.Version, b.options.Metadata); err != nil {
		return nil, err
	}
	p := &Package{Name: c.Name(), Version: c.Metadata.Version, Data: b.data, ValuesFiles: merged}
	if b.data != nil && b.options.Metadata == "" && len(merged) == 0 {
		return p, nil
	}
	p.Data, err = pack(c, b.options.Limits)
	if err != nil {
		return nil, fault.New(sourcev1.ChartPackageErrorReason, "cannot package chart '%s' %s", p.Name, p.Version).
			Because(err)
	}
	return p, nil
}

// values parses a values file. It takes memory of the budget while the chart is in use.
func (b *builder) values(text []byte) (map[string]any, error) {
	lease, err := yamlsize.Acquire(b.ctx, "merging values files", text)
	if err != nil {
		return nil, err
	}
	guard.HoldWhile(lease, b.chart)
	return loader.LoadValues(bytes.NewReader(text))
}

// mergeValues replaces the values of the chart with values of the values files. It returns the files that it merged.
func (b *builder) mergeValues() (merged []string, err error) {
	values := map[string]any{}
	for _, name := range b.options.ValuesFiles {
		text, known := b.options.Files[name]
		var err error
		if !known {
			text, err = b.read(name)
		}
		if errors.Is(err, fs.ErrNotExist) && b.options.IgnoreMissing {
			continue
		}
		var more map[string]any
		if err == nil && int64(len(text)) > b.options.Limits.File {
			err = fmt.Errorf("the file exceeds %d bytes", b.options.Limits.File)
		}
		if err == nil {
			more, err = b.values(text)
		}
		if err != nil {
			return nil, fault.New(sourcev1.ValuesFilesErrorReason, "cannot merge values file '%s'", name).
				Because(err).
				WithHint("Correct spec.valuesFiles, or set spec.ignoreMissingValuesFiles to skip missing files").Final()
		}
		values = loader.MergeMaps(values, more)
		merged = append(merged, name)
	}
	if len(merged) == 0 {
		return nil, nil
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, fault.New(sourcev1.ValuesFilesErrorReason, "cannot write the merged values").Because(err)
	}
	c := b.chart
	c.Values = values
	c.Raw = append(slices.DeleteFunc(c.Raw, func(f *common.File) bool { return f.Name == chartutil.ValuesfileName }),
		&common.File{Name: chartutil.ValuesfileName, ModTime: epoch, Data: text})
	return merged, nil
}

// WithMetadata returns a version with its build metadata, the part after the plus sign, replaced. Empty
// metadata returns the version unchanged.
func WithMetadata(version, metadata string) (string, error) {
	if metadata == "" {
		return version, nil
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return "", fault.New(sourcev1.InvalidChartReferenceReason, "the version %q of the chart is invalid", version).
			Because(err).Final()
	}
	with, err := v.SetMetadata(metadata)
	if err != nil {
		return "", fault.New(sourcev1.ChartPackageErrorReason, "%q is not valid build metadata of a version", metadata).
			Because(err)
	}
	return with.String(), nil
}

// pack packages the chart with Helm's packager. Timestamps are fixed and charts are sorted, so that the output is
// deterministic.
func pack(c *chart.Chart, l Limits) (data []byte, err error) {
	normalize(c)
	dir, err := os.MkdirTemp("", "sluice-chart-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := chartutil.Save(c, dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err == nil && info.Size() > l.Chart {
		err = fmt.Errorf("the package with its dependencies exceeds %d bytes; raise --helm-chart-max-size",
			l.Chart)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// normalize fixes the timestamps and the order of the charts in a chart.
func normalize(c *chart.Chart) {
	c.ModTime, c.SchemaModTime = epoch, epoch
	if c.Lock != nil && c.Lock.Generated.IsZero() {
		c.Lock.Generated = epoch
	}
	for _, d := range c.Dependencies() {
		normalize(d)
	}
	slices.SortStableFunc(c.Dependencies(), func(a, b *chart.Chart) int {
		return strings.Compare(a.Name()+" "+a.Metadata.Version, b.Name()+" "+b.Metadata.Version)
	})
}
