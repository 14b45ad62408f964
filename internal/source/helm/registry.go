package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Media types of the layers of a chart in a registry.
const (
	chartLayer      types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	provenanceLayer types.MediaType = "application/vnd.cncf.helm.chart.provenance.v1.prov"
)

// maxTags bounds how many tags of a chart are looked at.
const maxTags = 100_000

// Registry is a folder of charts in an OCI registry: each chart is a repository below it, each version a tag.
type Registry struct {
	URL       string // oci://HOST/PATH
	Keychain  authn.Keychain
	Transport http.RoundTripper
	Insecure  bool // over HTTP
	Limits    Limits
}

// Check tells whether the URL can be used.
func (r *Registry) Check() error {
	_, err := r.repository("chart")
	return err
}

// Access returns what a client needs to speak to the registry.
func (r *Registry) Access(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(r.Transport), remote.WithAuthFromKeychain(r.Keychain)}
}

func (r *Registry) repository(chart string) (name.Repository, error) {
	at, ok := strings.CutPrefix(r.URL, "oci://")
	host, _, _ := strings.Cut(at, "/")
	var options []name.Option
	if r.Insecure {
		options = append(options, name.Insecure)
	}
	repository, err := name.NewRepository(strings.Trim(at, "/")+"/"+chart, options...)
	// A name without dot or port would be taken for a path at Docker Hub.
	if err == nil && (!ok || !fs.ValidPath(chart) || host != "localhost" && !strings.ContainsAny(host, ".:")) {
		err = errors.New("it leads elsewhere")
	}
	if err != nil {
		return repository, fault.New(meta.URLInvalidReason, "'%s' below %s is not the address of a chart in a registry", chart, fault.RedactURL(r.URL)).
			Because(err).WithHint("Write the URL as oci://HOST/PATH, without the chart's name and without a tag").Final()
	}
	return repository, nil
}

// Find implements [Repository]. A version that is not a range costs one HEAD; a range lists the tags too.
func (r *Registry) Find(ctx context.Context, chart, constraint string) (Offer, error) {
	repository, err := r.repository(chart)
	if err != nil {
		return Offer{}, err
	}
	if _, err := semver.StrictNewVersion(constraint); err == nil {
		o, err := r.offer(ctx, repository, chart, constraint)
		if !isMissing(err) {
			return o, err
		}
	}
	tags, err := r.tags(ctx, repository)
	if err != nil {
		return Offer{}, r.failed("list the versions of chart '"+chart+"'", err)
	}
	found, err := find(newestFirst(tags), chart, constraint)
	if err != nil {
		return Offer{}, notFound(err, r.URL)
	}
	return r.offer(ctx, repository, chart, found.Version)
}

// offer asks for the digest that a version's tag points at. A tag has _ for the + of a version, as in Helm.
func (r *Registry) offer(ctx context.Context, repository name.Repository, chart, version string) (Offer, error) {
	d, err := remote.Head(repository.Tag(strings.ReplaceAll(version, "+", "_")), r.Access(ctx)...)
	if err != nil {
		return Offer{}, r.failed(fmt.Sprintf("find version %s of chart '%s'", version, chart), err)
	}
	return Offer{Name: chart, Version: version, Digest: d.Digest.String(), URL: repository.Digest(d.Digest.String()).String()}, nil
}

func (r *Registry) tags(ctx context.Context, repository name.Repository) ([]Entry, error) {
	puller, err := remote.NewPuller(r.Access(ctx)...)
	if err != nil {
		return nil, err
	}
	pages, err := puller.Lister(ctx, repository)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for pages.HasNext() {
		page, err := pages.Next(ctx)
		if err != nil {
			return nil, err
		}
		for _, tag := range page.Tags {
			entries = append(entries, Entry{Version: strings.ReplaceAll(tag, "_", "+")})
		}
		if len(entries) > maxTags {
			return nil, fmt.Errorf("it has more than %d tags", maxTags)
		}
	}
	return entries, nil
}

// Image returns the reference of an offer's manifest, for whoever verifies its signatures.
func (r *Registry) Image(o Offer) (name.Digest, error) {
	repository, err := r.repository(o.Name)
	return repository.Digest(o.Digest), err
}

// Pull implements [Repository].
func (r *Registry) Pull(ctx context.Context, o Offer) ([]byte, error) {
	return r.layer(ctx, o, chartLayer, r.Limits.Chart)
}

// Provenance implements [Repository].
func (r *Registry) Provenance(ctx context.Context, o Offer) ([]byte, error) {
	return r.layer(ctx, o, provenanceLayer, maxProvenance)
}

// layer reads the one layer of a media type. The registry's client checks it against the manifest's digest of it.
func (r *Registry) layer(ctx context.Context, o Offer, mediaType types.MediaType, limit int64) ([]byte, error) {
	at, err := r.Image(o)
	if err != nil {
		return nil, err
	}
	data, err := r.readLayer(ctx, at, mediaType, limit)
	if err != nil {
		return nil, r.failed(fmt.Sprintf("pull chart '%s' %s", o.Name, o.Version), err)
	}
	return data, nil
}

func (r *Registry) readLayer(ctx context.Context, at name.Digest, mediaType types.MediaType, limit int64) ([]byte, error) {
	image, err := remote.Image(at, r.Access(ctx)...)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	var found *v1.Descriptor
	for i, l := range manifest.Layers {
		if l.MediaType != mediaType {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("it has more than one layer of type %s", mediaType)
		}
		found = &manifest.Layers[i]
	}
	if found == nil {
		return nil, fmt.Errorf("it has no layer of type %s", mediaType)
	}
	if found.Size > limit {
		return nil, fmt.Errorf("it has %d bytes, more than %d", found.Size, limit)
	}
	layer, err := image.LayerByDigest(found.Digest)
	if err != nil {
		return nil, err
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(content, limit+1))
	if err == nil && int64(len(data)) != found.Size {
		err = fmt.Errorf("it has %d bytes, and the manifest says %d", len(data), found.Size)
	}
	return data, errors.Join(err, content.Close())
}

func isMissing(err error) bool {
	var t *transport.Error
	return errors.As(err, &t) && t.StatusCode == http.StatusNotFound
}

// failed makes a fault of what a registry's client says.
func (r *Registry) failed(what string, err error) error {
	at := fault.RedactURL(r.URL)
	var t *transport.Error
	if errors.As(err, &t) && (t.StatusCode == http.StatusUnauthorized || t.StatusCode == http.StatusForbidden) {
		return fault.New(meta.AuthenticationFailedReason, "cannot %s: %s refuses the login: status %d", what, at, t.StatusCode).
			WithHint("Check the Secret of spec.secretRef, or spec.provider")
	}
	reason := sourcev1.ChartPullErrorReason
	if isMissing(err) {
		reason = sourcev1.InvalidChartReferenceReason
	}
	f := fault.New(reason, "cannot %s of %s", what, at).Because(brief(err))
	if cause := fault.As(err); cause != nil {
		f.After(cause.RetryAfter)
	}
	return f
}

// brief leaves out the URLs of a client's error: they may hold a secret.
func brief(err error) error {
	var t *transport.Error
	if !errors.As(err, &t) {
		return withoutURL(err)
	}
	if len(t.Errors) > 0 {
		return &answer{fmt.Sprintf("status %d, %s", t.StatusCode, t.Errors[0].Code), err}
	}
	return &answer{fmt.Sprintf("status %d", t.StatusCode), err}
}

type answer struct {
	text  string
	cause error
}

func (a *answer) Error() string { return a.text }
func (a *answer) Unwrap() error { return a.cause }
