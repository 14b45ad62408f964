package helmrelease

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io/fs"
	"path"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	sourcehelm "github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	chartFile     = "Chart.yaml"
	digestSuffix  = 12       // hex digits of the digest of an artifact in the version of its chart
	maxChartBytes = 64 << 20 // of all files of a chart
)

// chartInfo is what the controller compares of a chart.
type chartInfo struct {
	artifact  string // digest
	name      string
	version   string // with the digest of an OCI artifact
	ociDigest string
	dir       string // in the artifact
}

// readChart returns the name and the version of the chart in an artifact.
func (c *Controller) readChart(ctx context.Context, kind string, source sourcev1.Source) (*artifact.Tree, chartInfo,
	error) {
	key := artifact.Key{Kind: kind, Namespace: source.GetNamespace(), Name: source.GetName()}
	tree, err := c.Artifacts.Fetch(ctx, key, *source.GetArtifact())
	if err != nil {
		return nil, chartInfo{}, err
	}
	dir, err := chartDir(tree)
	if err != nil {
		return nil, chartInfo{}, err
	}
	b, err := tree.ReadFile(path.Join(dir, chartFile))
	if err != nil {
		return nil, chartInfo{}, notAChart(err)
	}
	head, err := readHead(ctx, b)
	if err != nil {
		return nil, chartInfo{}, err
	}
	if err := head.Validate(); err != nil {
		return nil, chartInfo{}, notAChart(err)
	}
	info := chartInfo{artifact: source.GetArtifact().Digest, name: head.Name, version: head.Version, dir: dir}
	info.ociDigest = ociDigest(source)
	if info.ociDigest != "" && !c.Options.NoDigestTracking {
		info.version = withDigest(head.Version, info.ociDigest)
	}
	return tree, info, nil
}

// readHead parses a Chart.yaml. It takes the memory for it.
func readHead(ctx context.Context, b []byte) (*chart.Metadata, error) {
	lease, err := yamlsize.Acquire(ctx, "reading a chart", b)
	if guard.IsMemory(err) {
		return nil, err
	}
	if err != nil {
		return nil, notAChart(err)
	}
	defer lease.Release()
	head := &chart.Metadata{}
	if err := yaml.Unmarshal(b, head); err != nil {
		return nil, notAChart(err)
	}
	return head, nil
}

// chartDir returns the directory of the chart: the root of the artifact, or its only directory.
func chartDir(tree *artifact.Tree) (string, error) {
	if _, err := tree.Stat(chartFile); err == nil {
		return ".", nil
	}
	for _, e := range tree.Root().Entries {
		if _, err := tree.Stat(path.Join(e.Name, chartFile)); err == nil {
			return e.Name, nil
		}
	}
	return "", notAChart(fs.ErrNotExist)
}

func notAChart(err error) error {
	return fault.New(meta.ArtifactFailedReason, "the artifact is not a Helm chart: its %s cannot be read", chartFile).
		Because(err).WithHint("The source must have %s at its root or in its only directory", chartFile).Final()
}

// ociDigest returns the digest of the OCI artifact that a source fetched; empty for other sources.
func ociDigest(source sourcev1.Source) string {
	switch source.(type) {
	case *sourcev1.OCIRepository, *sourcev1.ExternalArtifact:
		return digestOf(source.GetArtifact().Revision)
	default:
		return ""
	}
}

// digestOf returns the digest of a revision of an OCI artifact.
func digestOf(revision string) string { return revision[strings.LastIndexByte(revision, '@')+1:] }

// withDigest returns a version whose build metadata ends with the start of a digest.
func withDigest(version, digest string) string {
	_, hex, ok := strings.Cut(digest, ":")
	v, err := semver.NewVersion(version)
	if !ok || err != nil || len(hex) < digestSuffix {
		return version
	}
	suffix := hex[:digestSuffix]
	out, err := v.SetMetadata(suffix)
	if err != nil {
		return version
	}
	return out.String()
}

// loadedChart is a chart, and its archive for the process that renders it.
type loadedChart struct {
	chart   *chart.Chart
	archive []byte
}

// loadChart loads the chart of a tree, with the version that the release gets.
func loadChart(ctx context.Context, tree *artifact.Tree, info chartInfo) (*loadedChart, error) {
	var files []*archive.BufferedFile
	total := 0
	err := tree.Walk(func(name string, e *artifact.Entry) error {
		inChart, ok := strings.CutPrefix(name, info.dir+"/")
		if info.dir == "." {
			inChart, ok = name, true
		}
		if !ok || !e.Mode.IsRegular() {
			return nil
		}
		b, err := tree.ReadFile(name)
		if err != nil {
			return err
		}
		if total += len(b); total > maxChartBytes {
			return fault.New(meta.ArtifactFailedReason, "the chart is larger than %d MiB", maxChartBytes>>20).Final()
		}
		if inChart == chartFile {
			if b, err = withVersion(b, info.version); err != nil {
				return err
			}
		}
		files = append(files, &archive.BufferedFile{Name: inChart, Data: b})
		return nil
	})
	if err != nil {
		return nil, err
	}
	loaded, err := sourcehelm.LoadFiles(ctx, files)
	if guard.IsMemory(err) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(meta.ArtifactFailedReason, "cannot load chart '%s' %s", info.name, info.version).
			Because(err).Final()
	}
	packed, err := pack(info.name, files)
	return &loadedChart{loaded, packed}, err
}

// withVersion sets the version in a Chart.yaml.
func withVersion(b []byte, version string) ([]byte, error) {
	var head map[string]any
	if err := yaml.Unmarshal(b, &head); err != nil {
		return nil, notAChart(err)
	}
	if head["version"] == version {
		return b, nil
	}
	head["version"] = version
	return yaml.Marshal(head)
}

// pack returns files as the archive of a chart.
func pack(name string, files []*archive.BufferedFile) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(compressed)
	for _, f := range files {
		head := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(name, f.Name), Mode: 0o644, Size: int64(len(f.Data))}
		if err := w.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
