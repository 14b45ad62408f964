package mirror

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"

	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// Media types of charts in a registry.
const (
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// source is an item with the content to copy.
type source struct {
	content.ReadOnlyStorage
	repository string // name in the mirror, before the prefix
	tag        string // empty if the item has only a digest
	root       ocispec.Descriptor
	signed     signedStorage // nil if nothing can refer to it
}

// signedStorage finds what refers to a manifest.
type signedStorage interface {
	content.ReadOnlyGraphStorage
	content.Resolver
}

// resolve finds the content of an item.
func (c *Copier) resolve(ctx context.Context, item Item) (*source, error) {
	switch item.Kind {
	case WebChart:
		return c.webChart(ctx, item)
	case OCIChart:
		charts := &helm.Registry{URL: item.ChartsURL, Limits: helm.DefaultLimits, Open: c.Registries.open}
		offer, err := charts.Find(ctx, item.Chart, cmp.Or(item.Version, "*"))
		if err != nil {
			return nil, err
		}
		item.Tag, item.Digest = strings.ReplaceAll(offer.Version, "+", "_"), offer.Digest
	case Artifact:
		repo, err := c.Registries.open(ctx, ociScheme+item.Repository)
		if err != nil {
			return nil, err
		}
		revision, err := repo.Resolve(ctx, oci.Reference{Digest: item.Digest, SemVer: item.Version,
			SemverFilter: item.VersionFilter, Tag: item.Tag, Layer: item.Layer})
		if err != nil {
			return nil, err
		}
		item.Tag, item.Digest = revision.Tag, revision.Digest.String()
	}
	repo, err := c.Registries.repository(item.Repository)
	if err != nil {
		return nil, err
	}
	root, err := repo.Resolve(ctx, cmp.Or(item.Digest, item.Tag))
	if err != nil {
		return nil, fmt.Errorf("cannot find it: %w", err)
	}
	return &source{ReadOnlyStorage: repo, repository: item.Repository, tag: item.Tag, root: root, signed: repo}, nil
}

// webChart downloads a chart from a Helm repository and makes it a chart of a registry. The package keeps its digest.
func (c *Copier) webChart(ctx context.Context, item Item) (*source, error) {
	repository, err := c.charts(ctx, item.ChartsURL)
	if err != nil {
		return nil, err
	}
	offer, err := repository.Find(ctx, item.Chart, cmp.Or(item.Version, "*"))
	if err != nil {
		return nil, err
	}
	data, err := repository.Pull(ctx, offer)
	if err != nil {
		return nil, err
	}
	chart, err := loader.LoadArchive(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cannot read the chart: %w", err)
	}
	config, err := json.Marshal(chart.Metadata)
	if err != nil {
		return nil, err
	}
	store := memory.New()
	layer, err := put(ctx, store, chartLayerType, data)
	if err != nil {
		return nil, err
	}
	configDescriptor, err := put(ctx, store, chartConfigType, config)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest, Config: configDescriptor, Layers: []ocispec.Descriptor{layer},
		Annotations: map[string]string{ocispec.AnnotationTitle: chart.Metadata.Name,
			ocispec.AnnotationVersion: chart.Metadata.Version}})
	if err != nil {
		return nil, err
	}
	root, err := put(ctx, store, ocispec.MediaTypeImageManifest, text)
	return &source{ReadOnlyStorage: store, repository: item.Repository, root: root,
		tag: strings.ReplaceAll(offer.Version, "+", "_")}, err
}

func put(ctx context.Context, store *memory.Store, mediaType string, data []byte) (ocispec.Descriptor, error) {
	d := content.NewDescriptorFromBytes(mediaType, data)
	return d, store.Push(ctx, d, bytes.NewReader(data))
}

// hostOf returns the host of a URL.
func hostOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("the URL of the Helm repository is not http:// or https://")
	}
	return u.Host, nil
}

// signatureTags are the suffixes of tags under which older tools store what refers to a manifest.
var signatureTags = []string{".sig", ".att", ".sbom"}

// companion is a manifest that refers to another one.
type companion struct {
	tag  string // empty if it refers by its subject
	root ocispec.Descriptor
}

// companions returns signatures, attestations and other manifests that refer to the content of a source.
func (s *source) companions(ctx context.Context) ([]companion, error) {
	if s.signed == nil {
		return nil, nil
	}
	referrers, err := s.signed.Predecessors(ctx, s.root)
	if err != nil {
		return nil, fmt.Errorf("cannot list its signatures: %w", err)
	}
	if len(referrers) > maxCompanions {
		return nil, fmt.Errorf("more than %d manifests refer to it", maxCompanions)
	}
	var found []companion
	for _, d := range referrers {
		found = append(found, companion{root: d})
	}
	base := digestTag(s.root.Digest)
	for _, suffix := range signatureTags {
		d, err := s.signed.Resolve(ctx, base+suffix)
		if err == nil {
			found = append(found, companion{tag: base + suffix, root: d})
		} else if !isNotFound(err) {
			return nil, fmt.Errorf("cannot look for its signatures: %w", err)
		}
	}
	return found, nil
}

// digestTag returns the tag that cosign derives from a digest.
func digestTag(d digest.Digest) string { return d.Algorithm().String() + "-" + d.Encoded() }
