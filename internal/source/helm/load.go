package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	sourceignore "github.com/sluice-gitops/sluice/internal/source/ignore"
)

// Limits of an unpacked chart, including the charts in it.
const (
	maxUnpacked = 100 << 20 // bytes
	maxFiles    = 10_000
	maxDepth    = 16       // of nested charts; directories may be nested 4 times as deep
	maxIgnore   = 64 << 10 // bytes of .helmignore
)

var utf8bom = []byte{0xEF, 0xBB, 0xBF}

// epoch is the timestamp of all files in packages, so that packages are deterministic.
var epoch = time.Unix(0, 0).UTC()

// files collects the files of a chart within the limits. Packaged charts in charts/ are unpacked in place.
type files struct {
	ctx    context.Context
	limits Limits
	left   int64 // bytes until the limit
	all    []*archive.BufferedFile
	names  map[string]bool // in lower case
	lease  *guard.Lease    // of the files and of what is parsed of them
}

func newFiles(ctx context.Context, l Limits) *files {
	return &files{ctx: ctx, limits: l, left: maxUnpacked, names: map[string]bool{},
		lease: guard.NewLease(ctx, "loading a chart")}
}

// LoadFiles returns the chart in files, and charts that are packaged in charts/. It refuses what a source of charts
// refuses, and takes memory of the budget of ctx while the chart is in use. The contents of files are not copied.
func LoadFiles(ctx context.Context, all []*archive.BufferedFile) (*chart.Chart, error) {
	f := newFiles(ctx, Limits{File: maxUnpacked})
	for _, file := range all {
		err := f.take(file.Name, int64(len(file.Data)))
		if err == nil {
			err = f.add(file.Name, file.Data, 0)
		}
		if err != nil {
			f.lease.Release()
			return nil, err
		}
	}
	return f.chart()
}

// load reads a packaged chart. It refuses archives, also in charts/, with paths outside of their directory, with
// entries that are not files, or that exceed the limits.
func load(ctx context.Context, data []byte, l Limits) (*chart.Chart, error) {
	f := newFiles(ctx, l)
	if err := f.archive("", data, 0); err != nil {
		f.lease.Release()
		return nil, err
	}
	return f.chart()
}

// chart returns the chart with the collected files.
func (f *files) chart() (*chart.Chart, error) {
	err := f.takeParsed()
	var c *chart.Chart
	if err == nil {
		c, err = loader.LoadFiles(f.all)
	}
	if err != nil {
		f.lease.Release()
		return nil, err
	}
	guard.HoldWhile(f.lease, c)
	return c, nil
}

// parsed are the names of files that Helm parses when it loads a chart.
var parsed = map[string]bool{"Chart.yaml": true, "Chart.lock": true, "values.yaml": true, "requirements.yaml": true,
	"requirements.lock": true}

// takeParsed takes the memory for what Helm parses, and checks the aliases in it.
func (f *files) takeParsed() error {
	for _, file := range f.all {
		if !parsed[path.Base(file.Name)] {
			continue
		}
		if err := f.lease.Take(f.ctx, yamlsize.Memory(file.Data)); err != nil {
			return err
		}
		if err := yamlsize.Check(file.Data); err != nil {
			return fmt.Errorf("the chart's file %.100q: %w", file.Name, err)
		}
	}
	return nil
}

// take counts a file towards the limits, before it is read.
func (f *files) take(name string, size int64) error {
	if size > f.limits.File {
		return fmt.Errorf("the chart's file %.100q exceeds %d bytes", name, f.limits.File)
	}
	if f.left -= size; f.left < 0 {
		return fmt.Errorf("the unpacked chart exceeds %d bytes", maxUnpacked)
	}
	return f.lease.Take(f.ctx, size)
}

// add adds a file. The name must be valid for io/fs.
func (f *files) add(name string, data []byte, depth int) error {
	if len(f.all) >= maxFiles {
		return fmt.Errorf("the chart has more than %d files", maxFiles)
	}
	lower := strings.ToLower(name)
	if f.names[lower] {
		return fmt.Errorf("the chart has two files named %.100q, ignoring case", name)
	}
	f.names[lower] = true
	if isPackagedSubchart(name) {
		return f.archive(strings.TrimSuffix(name, ".tgz")+"/", data, depth+1)
	}
	f.all = append(f.all, &archive.BufferedFile{Name: name, ModTime: epoch, Data: bytes.TrimPrefix(data, utf8bom)})
	return nil
}

// isPackagedSubchart reports whether a file is a packaged chart in charts/, at any depth. Helm ignores names that start
// with _ or a dot.
func isPackagedSubchart(name string) bool {
	for {
		rest, ok := strings.CutPrefix(name, "charts/")
		if !ok || rest == "" || rest[0] == '_' || rest[0] == '.' {
			return false
		}
		_, below, isNested := strings.Cut(rest, "/")
		if !isNested {
			return strings.HasSuffix(rest, ".tgz")
		}
		name = below
	}
}

// archive adds the files of a packaged chart below prefix.
func (f *files) archive(prefix string, data []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("charts are nested deeper than %d", maxDepth)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("not a packaged chart: %w", err)
	}
	t := tar.NewReader(z)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not a packaged chart: %w", err)
		}
		if n >= 2*maxFiles {
			return fmt.Errorf("the archive has more than %d entries", 2*maxFiles)
		}
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name, err := entryName(h)
		if err != nil {
			return err
		}
		content, err := f.read(name, t, h.Size)
		if err != nil {
			return err
		}
		if err := f.add(prefix+name, content, depth); err != nil {
			return err
		}
	}
}

// read reads a file of the given size.
func (f *files) read(name string, r io.Reader, size int64) ([]byte, error) {
	if err := f.take(name, size); err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("the chart's file %.100q: %w", name, err)
	}
	return data, nil
}

// entryName returns the name of an entry in the chart: without the top directory of the archive.
func entryName(h *tar.Header) (string, error) {
	if h.Typeflag != tar.TypeReg {
		return "", fmt.Errorf("the chart's entry %.100q has type %q: only files are allowed", h.Name, h.Typeflag)
	}
	if !utf8.ValidString(h.Name) {
		return "", fmt.Errorf("the name of the chart's entry %.100q is not valid UTF-8", h.Name)
	}
	full := strings.ReplaceAll(h.Name, `\`, "/") // as written on Windows
	_, name, found := strings.Cut(path.Clean(full), "/")
	if path.IsAbs(full) || !fs.ValidPath(path.Clean(full)) || strings.Contains(name, ":/") {
		return "", fmt.Errorf("the chart's entry %.100q is outside of the chart", h.Name)
	}
	if !found {
		return "", fmt.Errorf("the chart's entry %.100q is not in a directory", h.Name)
	}
	return name, nil
}

// loadDir reads the chart in a directory of a tree, without the files that .helmignore excludes. Symlinks are followed
// inside of the tree.
func loadDir(ctx context.Context, tree *artifact.Tree, dir string, l Limits) (*chart.Chart, error) {
	rules, err := ignored(tree, path.Join(dir, ignore.HelmIgnore))
	if err != nil {
		return nil, err
	}
	rules.AddDefaults()
	w := &walk{files: newFiles(ctx, l), tree: tree, root: dir, rules: rules}
	if err := w.dir("", 0); err != nil {
		w.files.lease.Release()
		return nil, err
	}
	c, err := w.files.chart()
	if err != nil && w.ignores(chartFileName) {
		return nil, fmt.Errorf("%s exists, but %s leaves it out: remove the rule. A rule with '!' leaves out all that "+
			"it does not match: %w", chartFileName, ignore.HelmIgnore, err)
	}
	return c, err
}

// chartFileName is the file that every chart has.
const chartFileName = "Chart.yaml"

// ignores reports whether a file exists that the rules leave out.
func (w *walk) ignores(name string) bool {
	info, err := w.tree.Stat(path.Join(w.root, name))
	return err == nil && w.rules.Ignore(name, info)
}

// ignored returns the rules of a .helmignore file; none if it does not exist. Each file is compared with each rule.
func ignored(tree *artifact.Tree, name string) (*ignore.Rules, error) {
	info, err := tree.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return ignore.Empty(), nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxIgnore {
		return nil, fmt.Errorf("%.200q exceeds %d bytes: use fewer rules", name, maxIgnore)
	}
	text, err := tree.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if bytes.Count(text, []byte("\n")) > sourceignore.MaxRules {
		return nil, fmt.Errorf("%.200q has more than %d lines: use fewer rules", name, sourceignore.MaxRules)
	}
	rules, err := ignore.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ignore.HelmIgnore, err)
	}
	return rules, nil
}

// walk collects the files below a directory of a tree.
type walk struct {
	*files
	tree  *artifact.Tree
	root  string
	rules *ignore.Rules
}

// dir adds the files of a directory.
func (w *walk) dir(name string, depth int) error {
	if depth > 4*maxDepth {
		return fmt.Errorf("the chart's directories are nested deeper than %d: check for a cycle of symlinks",
			4*maxDepth)
	}
	entries, err := w.tree.ReadDir(path.Join(w.root, name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.ctx.Err(); err != nil { // many rules take long
			return err
		}
		if err := w.entry(path.Join(name, e.Name()), depth); err != nil {
			return err
		}
	}
	return nil
}

// entry adds a file, or the files of a directory.
func (w *walk) entry(name string, depth int) error {
	at := path.Join(w.root, name)
	info, err := w.tree.Stat(at)
	if err != nil {
		return err
	}
	switch {
	case w.rules.Ignore(name, info):
		return nil
	case info.IsDir():
		return w.dir(name, depth+1)
	}
	if info.Size() > w.limits.File {
		return fmt.Errorf("the chart's file %.100q exceeds %d bytes", name, w.limits.File)
	}
	if len(w.all) >= maxFiles {
		return fmt.Errorf("the chart has more than %d files", maxFiles)
	}
	data, err := w.tree.ReadFile(at)
	if err != nil {
		return err
	}
	if data, err = w.read(name, bytes.NewReader(data), int64(len(data))); err != nil {
		return err
	}
	return w.add(name, data, 0)
}
