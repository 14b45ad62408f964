package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Media types of the layers of a chart in a registry.
const (
	chartLayer      = oci.ChartLayer
	provenanceLayer = "application/vnd.cncf.helm.chart.provenance.v1.prov"
)

// Registry is a path with charts in an OCI registry: each chart is a repository below it, and each version a tag.
type Registry struct {
	URL    string // oci://HOST or oci://HOST/PATH
	Limits Limits
	// Open returns the repository with the URL of a chart.
	Open func(ctx context.Context, url string) (*oci.Repository, error)
}

// open returns the repository of a chart.
func (r *Registry) open(ctx context.Context, chart string) (*oci.Repository, error) {
	return r.Open(ctx, r.ChartURL(chart))
}

// ChartURL returns the URL of the repository of a chart.
func (r *Registry) ChartURL(chart string) string { return strings.TrimSuffix(r.URL, "/") + "/" + chart }

// Find implements [Repository]. For a single version it sends one HEAD request; for a range it lists the tags first.
func (r *Registry) Find(ctx context.Context, chart, constraint string) (Offer, error) {
	repository, err := r.open(ctx, chart)
	if err != nil {
		return Offer{}, err
	}
	if _, err := version.Parse(constraint); err == nil {
		o, err := r.offer(ctx, repository, chart, constraint)
		if !isMissing(err) {
			return o, err
		}
	}
	tags, err := repository.Tags(ctx)
	if err != nil {
		return Offer{}, r.failed(fmt.Sprintf("find versions of chart '%s'", chart), err)
	}
	var entries []Entry
	for _, tag := range tags { // as Helm lists them: without v1.2.3 and 1.2
		if v, err := semver.StrictNewVersion(strings.ReplaceAll(tag, "_", "+")); err == nil {
			entries = append(entries, Entry{Version: v.Original()})
		}
	}
	found, err := find(newestFirst(entries), chart, constraint)
	if err != nil {
		return Offer{}, notFound(err, r.URL)
	}
	return r.offer(ctx, repository, chart, found.Version)
}

// offer returns the digest of a version. Tags have an underscore in place of the plus sign of a version, as in Helm.
func (r *Registry) offer(ctx context.Context, repository *oci.Repository, chart, version string) (Offer, error) {
	found, err := repository.Resolve(ctx, oci.Reference{Tag: strings.ReplaceAll(version, "+", "_")})
	if err != nil {
		return Offer{}, r.failed(fmt.Sprintf("find version %s of chart '%s'", version, chart), err)
	}
	return Offer{Name: chart, Version: version, Digest: found.Digest.String(),
		URL: repository.At(found.Digest).String()}, nil
}

// Signed returns the manifest that the signatures of an offer refer to, and options for requests for the signatures.
func (r *Registry) Signed(ctx context.Context, o Offer) (name.Digest, []remote.Option, error) {
	repository, err := r.open(ctx, o.Name)
	if err != nil {
		return name.Digest{}, nil, err
	}
	digest, err := v1.NewHash(o.Digest)
	return repository.At(digest), repository.Options(), err
}

// Pull implements [Repository].
func (r *Registry) Pull(ctx context.Context, o Offer) ([]byte, error) {
	return r.layer(ctx, o, chartLayer, r.Limits.Chart)
}

// Provenance implements [Repository].
func (r *Registry) Provenance(ctx context.Context, o Offer) ([]byte, error) {
	return r.layer(ctx, o, provenanceLayer, maxProvenance)
}

// layer returns a layer of a chart.
func (r *Registry) layer(ctx context.Context, o Offer, mediaType string, limit int64) ([]byte, error) {
	repository, err := r.open(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	data, err := readLayer(ctx, repository, o.Digest, mediaType, limit)
	if err != nil {
		return nil, r.failed(fmt.Sprintf("pull chart '%s' %s", o.Name, o.Version), err)
	}
	return data, nil
}

// readLayer returns a layer with a media type. Its digest is verified.
func readLayer(ctx context.Context, repository *oci.Repository, manifest, mediaType string, limit int64) ([]byte,
	error) {
	digest, err := v1.NewHash(manifest)
	if err != nil {
		return nil, err
	}
	image, err := repository.Pull(ctx, digest)
	if err != nil {
		return nil, err
	}
	layer, err := image.Layer(mediaType)
	if err != nil {
		if f := fault.As(err); f != nil { // the hint is about spec.layerSelector, which charts do not have
			f.Hint = "Check that the reference is a chart, and push it with helm push"
		}
		return nil, err
	}
	blob, err := layer.Open(ctx)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(blob, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it exceeds %d bytes", limit)
	}
	return data, errors.Join(err, blob.Close())
}

// isMissing reports whether a registry responded with 404.
func isMissing(err error) bool {
	var t *transport.Error
	return errors.As(err, &t) && t.StatusCode == http.StatusNotFound
}

// failed returns a fault for a failed request to the registry.
func (r *Registry) failed(what string, err error) error {
	f := fault.New(sourcev1.ChartPullErrorReason, "cannot %s in %s", what, fault.RedactURL(r.URL)).Because(err)
	if isMissing(err) {
		f.Reason = sourcev1.InvalidChartReferenceReason
	}
	if cause := fault.As(err); cause != nil {
		f.RetryAfter = cause.RetryAfter
		if cause.Reason == meta.AuthenticationFailedReason || cause.Reason == meta.URLInvalidReason {
			f.Reason, f.Terminal = cause.Reason, cause.Terminal
		}
	}
	return f
}
