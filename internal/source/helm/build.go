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
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Options say what of a chart is changed when it is built.
type Options struct {
	// Metadata takes the place of the version's build metadata: the part after the plus sign. Unchanged when empty.
	Metadata string
	// ValuesFiles are merged, later ones win, and replace values.yaml. Their paths are relative to the tree,
	// or to the chart when it comes from a repository.
	ValuesFiles []string
	// IgnoreMissing passes over values files that are not there.
	IgnoreMissing bool
	Limits        Limits
	// Repository gives the repository of a dependency's URL.
	Repository func(ctx context.Context, url string) (Repository, error)
}

// Package is a packaged chart.
type Package struct {
	Name, Version string
	Data          []byte
	ValuesFiles   []string // those that were merged
}

// Repackage checks a chart of a repository and packages it anew, if options ask for that. The same input
// gives the same bytes.
func Repackage(offer Offer, data []byte, o Options) (*Package, error) {
	c, err := load(data, o.Limits)
	if err != nil {
		return nil, fault.New(sourcev1.ChartPullErrorReason, "chart '%s' %s cannot be used", offer.Name, offer.Version).
			Because(err)
	}
	if err := matches(c, offer); err != nil {
		return nil, err
	}
	b := building{chart: c, options: o, data: data, read: func(name string) ([]byte, error) { return rawFile(c, name) }}
	return b.finish()
}

// matches checks that the chart is the one that the repository says it is.
func matches(c *chart.Chart, offer Offer) error {
	said, err := semver.NewVersion(offer.Version)
	if err != nil {
		return fault.New(sourcev1.ChartPullErrorReason, "%q is no version", offer.Version)
	}
	is, err := semver.NewVersion(c.Metadata.Version)
	if err != nil || c.Name() != offer.Chart() || !is.Equal(said) {
		return fault.New(sourcev1.ChartPullErrorReason, "the repository gives chart '%.100s' %.100s for chart '%s' %s",
			c.Name(), c.Metadata.Version, offer.Name, offer.Version).
			WithHint("The repository's index is wrong: publish the chart again")
	}
	return nil
}

func rawFile(c *chart.Chart, name string) ([]byte, error) {
	name = path.Clean(name)
	for _, f := range c.Raw {
		if f.Name == name {
			return f.Data, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// Describe returns name and version of the chart at a path of a tree: of a directory or of a packaged chart.
func Describe(tree *artifact.Tree, at string, l Limits) (name, version string, err error) {
	at, err = locate(tree, at)
	if err != nil {
		return "", "", err
	}
	m := &chart.Metadata{}
	if info, err := tree.Stat(at); err == nil && !info.IsDir() {
		c, err := loadFile(tree, at, l)
		if err != nil {
			return "", "", invalid(at, err)
		}
		return c.Name(), c.Metadata.Version, nil
	}
	text, err := tree.ReadFile(path.Join(at, chartutil.ChartfileName))
	if err != nil {
		return "", "", invalid(at, err)
	}
	if err = yaml.Unmarshal(text, m); err == nil {
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

// BuildTree packages the chart at a path of a tree, with its dependencies. The same input gives the same bytes.
func BuildTree(ctx context.Context, tree *artifact.Tree, at string, o Options) (*Package, error) {
	at, err := locate(tree, at)
	if err != nil {
		return nil, err
	}
	b := building{options: o, read: func(name string) ([]byte, error) { return readIn(tree, name) }}
	info, err := tree.Stat(at)
	switch {
	case err != nil:
		return nil, invalid(at, err)
	case info.IsDir():
		d := &dependencies{tree: tree, options: o}
		b.chart, err = d.load(ctx, at)
	default:
		if b.chart, err = loadFile(tree, at, o.Limits); err == nil {
			b.data, err = tree.ReadFile(at)
		}
	}
	if err != nil {
		if fault.As(err) != nil {
			return nil, err
		}
		return nil, invalid(at, err)
	}
	return b.finish()
}

// locate cleans a path that a user wrote.
func locate(tree *artifact.Tree, at string) (string, error) {
	clean := path.Clean(strings.TrimLeft(at, "/"))
	if !fs.ValidPath(clean) {
		return "", fault.New(sourcev1.InvalidChartReferenceReason, "the path '%s' leads out of the source", at).
			WithHint("Correct spec.chart").Final()
	}
	if _, err := tree.Stat(clean); err != nil {
		return "", fault.New(sourcev1.InvalidChartReferenceReason, "there is no chart at '%s' in the source", at).
			Because(err).
			WithHint("Correct spec.chart, or check that the source does not ignore it").Final()
	}
	return clean, nil
}

func invalid(at string, err error) error {
	return fault.New(sourcev1.InvalidChartReferenceReason, "what is at '%s' is no chart that can be used", at).
		Because(err).Final()
}

func loadFile(tree *artifact.Tree, at string, l Limits) (*chart.Chart, error) {
	info, err := tree.Stat(at)
	if err == nil && info.Size() > l.Chart {
		err = fmt.Errorf("it has more than %d bytes", l.Chart)
	}
	if err != nil {
		return nil, err
	}
	data, err := tree.ReadFile(at)
	if err != nil {
		return nil, err
	}
	return load(data, l)
}

func readIn(tree *artifact.Tree, name string) ([]byte, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if !fs.ValidPath(clean) {
		return nil, errors.New("it leads out of the source")
	}
	return tree.ReadFile(clean)
}

// building is a chart on its way to a package.
type building struct {
	chart   *chart.Chart
	options Options
	data    []byte // the package as it was found; nil of a directory
	read    func(name string) ([]byte, error)
}

func (b *building) finish() (*Package, error) {
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

// mergeValues makes the chart's values those of the values files, and returns the files that are there.
func (b *building) mergeValues() (merged []string, err error) {
	values := map[string]any{}
	for _, name := range b.options.ValuesFiles {
		text, err := b.read(name)
		if errors.Is(err, fs.ErrNotExist) && b.options.IgnoreMissing {
			continue
		}
		var more map[string]any
		if err == nil && int64(len(text)) > b.options.Limits.File {
			err = fmt.Errorf("it has more than %d bytes", b.options.Limits.File)
		}
		if err == nil {
			more, err = loader.LoadValues(bytes.NewReader(text))
		}
		if err != nil {
			return nil, fault.New(sourcev1.ValuesFilesErrorReason, "values file '%s' cannot be merged", name).
				Because(err).
				WithHint("Correct spec.valuesFiles; spec.ignoreMissingValuesFiles passes over files that are " +
					"not there").Final()
		}
		values = loader.MergeMaps(values, more)
		merged = append(merged, name)
	}
	if len(merged) == 0 {
		return nil, nil
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, fault.New(sourcev1.ValuesFilesErrorReason, "the merged values cannot be written").Because(err)
	}
	c := b.chart
	c.Values = values
	c.Raw = append(slices.DeleteFunc(c.Raw, func(f *common.File) bool { return f.Name == chartutil.ValuesfileName }),
		&common.File{Name: chartutil.ValuesfileName, ModTime: epoch, Data: text})
	return merged, nil
}

// WithMetadata returns a version with other build metadata: the part after the plus sign. It stays as it is
// when that is empty.
func WithMetadata(version, metadata string) (string, error) {
	if metadata == "" {
		return version, nil
	}
	v, err := semver.NewVersion(version)
	if err != nil {
		return "", fault.New(sourcev1.InvalidChartReferenceReason, "the chart's version %q is none", version).
			Because(err).Final()
	}
	with, err := v.SetMetadata(metadata)
	if err != nil {
		return "", fault.New(sourcev1.ChartPackageErrorReason, "%q cannot be metadata of a version", metadata).
			Because(err)
	}
	return with.String(), nil
}

// pack writes the package with Helm's packager. All times are the same, and the order of charts is that of their names.
func pack(c *chart.Chart, l Limits) (data []byte, err error) {
	settle(c)
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
		err = fmt.Errorf("it has more than %d bytes with its dependencies: --helm-chart-max-size allows for more",
			l.Chart)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func settle(c *chart.Chart) {
	c.ModTime, c.SchemaModTime = epoch, epoch
	if c.Lock != nil && c.Lock.Generated.IsZero() {
		c.Lock.Generated = epoch
	}
	for _, d := range c.Dependencies() {
		settle(d)
	}
	slices.SortStableFunc(c.Dependencies(), func(a, b *chart.Chart) int {
		return strings.Compare(a.Name()+" "+a.Metadata.Version, b.Name()+" "+b.Metadata.Version)
	})
}
