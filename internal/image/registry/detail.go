package registry

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxManifest  = 4 << 20 // bytes of a manifest, and of an image's configuration
	maxLabels    = 64      // of an image; others are dropped
	maxLabel     = 512     // bytes of name and value; longer labels are dropped
	maxPlatforms = 64      // of an image; others are dropped
	maxPlatform  = 128     // bytes; longer platforms are dropped

	createdAnnotation = "org.opencontainers.image.created" // https://specs.opencontainers.org/image-spec/annotations/
)

// earliest is a time before the first container image. Reproducible builds set earlier creation times, such
// as 1970 or 1980, which are ignored.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrUnreadable means that the image of a tag cannot be read, and that a retry would not help: it was
// deleted, is not an image, or its digest does not match.
var ErrUnreadable = errors.New("the image cannot be read")

// Current returns the current digest of a tag, computed from the manifest.
func (r *Repository) Current(ctx context.Context, tag string) (string, error) {
	got, err := remote.Get(r.name.Tag(tag), r.options(ctx)...)
	if err != nil {
		return "", r.failed(err, "cannot read the digest of '%s:%s'", r.name.Name(), tag)
	}
	return got.Digest.String(), nil
}

// Read returns a tag with details. It needs only one request if the digest of the tag did not change, or if
// known has its details.
func (r *Repository) Read(ctx context.Context, before policy.Tag,
	known func(digest string) (policy.Tag, bool)) (policy.Tag, error) {
	hash, err := r.Digest(ctx, before.Name)
	if err != nil {
		return policy.Tag{}, r.unreadable(err, before.Name)
	}
	digest := hash.String()
	if digest == before.Digest {
		return before, nil
	}
	if same, ok := known(digest); ok {
		same.Name = before.Name
		return same, nil
	}
	tag := policy.Tag{Name: before.Name, Digest: digest}
	if err := r.readManifest(ctx, hash, &tag); err != nil {
		return policy.Tag{}, r.unreadable(err, before.Name)
	}
	return tag, nil
}

// unreadable returns the error for a tag. It wraps ErrUnreadable if the error is about the image and not
// about the registry.
func (r *Repository) unreadable(err error, tag string) error {
	var response *transport.Error
	isResponse := errors.As(err, &response) // other responses may be temporary
	if guard.IsMemory(err) {
		return err
	}
	explained := r.failed(err, "cannot read '%s:%s'", r.name.Name(), tag)
	if errors.Is(err, errContent) || isResponse && response.StatusCode == http.StatusNotFound {
		return errors.Join(ErrUnreadable, explained)
	}
	return explained
}

// errContent means that the registry returned invalid content.
var errContent = errors.New("the registry returned invalid content")

// readManifest sets the details of a tag from the manifest with a digest.
func (r *Repository) readManifest(ctx context.Context, digest v1.Hash, tag *policy.Tag) error {
	got, err := r.manifest(ctx, digest)
	if err != nil {
		return err
	}
	if got.MediaType.IsIndex() {
		return r.readIndex(ctx, got, tag)
	}
	return r.readImage(ctx, got, tag)
}

// manifest returns the manifest with a digest. The error wraps errContent if its content does not match the digest.
func (r *Repository) manifest(ctx context.Context, digest v1.Hash) (*remote.Descriptor, error) {
	got, err := remote.Get(r.At(digest), r.options(ctx)...)
	var response *transport.Error
	if err != nil && !errors.As(err, &response) && ctx.Err() == nil && !isNetwork(err) {
		return nil, errors.Join(errContent, err)
	}
	if err == nil && len(got.Manifest) > maxManifest {
		return nil, errContent
	}
	return got, err
}

// readIndex sets the platforms of an index, and the other details from its annotations or its first image.
func (r *Repository) readIndex(ctx context.Context, got *remote.Descriptor, tag *policy.Tag) error {
	lease, err := leaseFor(ctx, got.Manifest)
	if err != nil {
		return err
	}
	defer lease.Release()
	var index v1.IndexManifest
	if err := json.Unmarshal(got.Manifest, &index); err != nil {
		return errContent
	}
	var first *v1.Descriptor
	for i, m := range index.Manifests {
		if m.Platform == nil || m.Platform.OS == "" || m.Platform.OS == "unknown" { // attestations
			continue
		}
		if first == nil {
			first = &index.Manifests[i]
		}
		addPlatform(tag, *m.Platform)
	}
	slices.Sort(tag.Platforms)
	tag.Platforms = slices.Compact(tag.Platforms)
	if first != nil && first.MediaType.IsImage() {
		image, err := r.manifest(ctx, first.Digest)
		if err != nil {
			return err
		}
		child := policy.Tag{}
		if err := r.readImage(ctx, image, &child); err != nil {
			return err
		}
		tag.Created, tag.Labels = child.Created, child.Labels
	}
	addLabels(tag, index.Annotations)
	return nil
}

// readImage sets the labels, the platform and the creation time of an image. For artifacts that are not
// images, such as charts, it sets only the annotations of the manifest.
func (r *Repository) readImage(ctx context.Context, got *remote.Descriptor, tag *policy.Tag) error {
	lease, err := leaseFor(ctx, got.Manifest)
	if err != nil {
		return err
	}
	defer lease.Release()
	var manifest v1.Manifest
	if err := json.Unmarshal(got.Manifest, &manifest); err != nil {
		return errContent
	}
	if t := manifest.Config.MediaType; t == types.OCIConfigJSON || t == types.DockerConfigJSON {
		if err := r.readConfig(ctx, got, manifest.Config, tag); err != nil {
			return err
		}
	}
	addLabels(tag, manifest.Annotations)
	if tag.Created.Before(earliest) {
		tag.Created = time.Time{}
	}
	return nil
}

// readConfig sets the labels, the platform and the creation time of an image from its configuration.
func (r *Repository) readConfig(ctx context.Context, got *remote.Descriptor, at v1.Descriptor, tag *policy.Tag) error {
	if at.Size > maxManifest {
		return errContent
	}
	image, err := got.Image()
	if err != nil {
		return errors.Join(errContent, err)
	}
	raw, err := image.RawConfigFile()
	var response *transport.Error
	if err != nil && !errors.As(err, &response) && !isNetwork(err) {
		return errors.Join(errContent, err)
	}
	if err != nil {
		return err
	}
	lease, err := leaseFor(ctx, raw)
	if err != nil {
		return err
	}
	defer lease.Release()
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return errContent
	}
	tag.Platforms = nil
	if config.OS != "" {
		addPlatform(tag, v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant})
	}
	tag.Created = config.Created.UTC()
	addLabels(tag, config.Config.Labels)
	return nil
}

// addPlatform adds a platform to a tag as os/architecture or os/architecture/variant. It drops platforms that are too
// long to be one, and those with a comma, which separates the platforms of a stored tag.
func addPlatform(tag *policy.Tag, p v1.Platform) {
	if len(p.OS)+len(p.Architecture)+len(p.Variant) > maxPlatform || len(tag.Platforms) >= maxPlatforms {
		return
	}
	if s := platform(p); !strings.Contains(s, ",") {
		tag.Platforms = append(tag.Platforms, s)
	}
}

// addLabels adds labels or annotations to a tag; those of the outermost manifest take precedence. The annotation
// org.opencontainers.image.created sets the creation time.
func addLabels(tag *policy.Tag, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if key == createdAnnotation {
			if created, err := time.Parse(time.RFC3339, value); err == nil && !created.Before(earliest) {
				tag.Created = created.UTC()
			}
		}
		if len(key)+len(value) > maxLabel || len(tag.Labels) >= maxLabels {
			continue
		}
		if tag.Labels == nil {
			tag.Labels = map[string]string{}
		}
		tag.Labels[key] = value
	}
}

// isNetwork reports whether an error is about the connection and not about the content.
func isNetwork(err error) bool {
	var network *url.Error
	return errors.As(err, &network) || fault.As(err) != nil
}

// platform returns a platform as os/architecture or os/architecture/variant.
func platform(p v1.Platform) string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

func (r *Repository) options(ctx context.Context) []remote.Option {
	return append(r.Options(), remote.WithContext(ctx))
}
