package registry

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/policy"
)

const (
	maxConfig    = 4 << 20 // bytes of an image's configuration
	maxLabels    = 64      // of an image; the first ones count
	maxLabel     = 512     // bytes of a label's name and value; longer ones are left out
	maxPlatforms = 64

	createdAnnotation = "org.opencontainers.image.created" // https://specs.opencontainers.org/image-spec/annotations/
)

// earliest is before any container image: tools that build the same bytes every time say that they did so in
// 1970, or 1980.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrUnreadable says that what a tag points to cannot be read, and that asking again would not help: it is
// gone, it is no image, or it is not what the registry says it is.
var ErrUnreadable = errors.New("the image cannot be read")

// Current returns the digest that a tag points to now. It is that of the manifest itself, whatever the registry says.
func (r *Repository) Current(ctx context.Context, tag string) (string, error) {
	got, err := remote.Get(r.name.Tag(tag), r.options(ctx)...)
	if err != nil {
		return "", r.failed(err, "cannot read the digest of '%s:%s'", r.name.Name(), tag)
	}
	return got.Digest.String(), nil
}

// Look returns what a tag points to: by one request if that is as it was, or is known of another tag.
func (r *Repository) Look(ctx context.Context, before policy.Tag,
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
	if err := r.read(ctx, hash, &tag); err != nil {
		return policy.Tag{}, r.unreadable(err, before.Name)
	}
	return tag, nil
}

// unreadable tells errors that are about the image from those that are about the registry.
func (r *Repository) unreadable(err error, tag string) error {
	var answer *transport.Error
	told := errors.As(err, &answer) // a registry that answers for another reason may know better later
	explained := r.failed(err, "cannot read '%s:%s'", r.name.Name(), tag)
	if errors.Is(err, errContent) || told && answer.StatusCode == http.StatusNotFound {
		return errors.Join(ErrUnreadable, explained)
	}
	return explained
}

// errContent is the cause of ErrUnreadable where the registry did answer.
var errContent = errors.New("what the registry gives is no image, or not what it says")

// read fills in what the manifest with a digest says.
func (r *Repository) read(ctx context.Context, digest v1.Hash, tag *policy.Tag) error {
	got, err := r.manifest(ctx, digest)
	if err != nil {
		return err
	}
	if got.MediaType.IsIndex() {
		return r.readIndex(ctx, got, tag)
	}
	return r.readImage(got, tag)
}

// manifest returns the one with a digest. Another one than that is no answer.
func (r *Repository) manifest(ctx context.Context, digest v1.Hash) (*remote.Descriptor, error) {
	got, err := remote.Get(r.At(digest), r.options(ctx)...)
	var answer *transport.Error
	if err != nil && !errors.As(err, &answer) && ctx.Err() == nil && !isNetwork(err) {
		return nil, errors.Join(errContent, err)
	}
	return got, err
}

// readIndex takes the platforms of an index, and the rest of what it says itself or else of its first image.
func (r *Repository) readIndex(ctx context.Context, got *remote.Descriptor, tag *policy.Tag) error {
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
		if len(tag.Platforms) < maxPlatforms {
			tag.Platforms = append(tag.Platforms, platform(*m.Platform))
		}
	}
	slices.Sort(tag.Platforms)
	tag.Platforms = slices.Compact(tag.Platforms)
	if first != nil && first.MediaType.IsImage() {
		image, err := r.manifest(ctx, first.Digest)
		if err != nil {
			return err
		}
		child := policy.Tag{}
		if err := r.readImage(image, &child); err != nil {
			return err
		}
		tag.Created, tag.Labels = child.Created, child.Labels
	}
	describe(tag, index.Annotations)
	return nil
}

// readImage takes the labels, the platform and the time of an image. What is no image, such as a chart, says
// only what its manifest does.
func (r *Repository) readImage(got *remote.Descriptor, tag *policy.Tag) error {
	var manifest v1.Manifest
	if err := json.Unmarshal(got.Manifest, &manifest); err != nil {
		return errContent
	}
	if t := manifest.Config.MediaType; t == types.OCIConfigJSON || t == types.DockerConfigJSON {
		config, err := r.config(got, manifest.Config)
		if err != nil {
			return err
		}
		tag.Platforms = []string{platform(v1.Platform{OS: config.OS, Architecture: config.Architecture,
			Variant: config.Variant})}
		if config.OS == "" {
			tag.Platforms = nil
		}
		tag.Created = config.Created.UTC()
		describe(tag, config.Config.Labels)
	}
	describe(tag, manifest.Annotations)
	if tag.Created.Before(earliest) {
		tag.Created = time.Time{}
	}
	return nil
}

func (r *Repository) config(got *remote.Descriptor, at v1.Descriptor) (*v1.ConfigFile, error) {
	if at.Size > maxConfig {
		return nil, errContent
	}
	image, err := got.Image()
	if err != nil {
		return nil, errors.Join(errContent, err)
	}
	config, err := image.ConfigFile()
	var answer *transport.Error
	if err != nil && !errors.As(err, &answer) && !isNetwork(err) {
		return nil, errors.Join(errContent, err)
	}
	return config, err
}

// describe adds labels or annotations; those of the outermost manifest win. The time that they name is what a
// person meant.
func describe(tag *policy.Tag, labels map[string]string) {
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

// isNetwork tells an error of the way to the registry from one of what it gave.
func isNetwork(err error) bool {
	var network *url.Error
	return errors.As(err, &network) || fault.As(err) != nil
}

// platform writes a platform as os/architecture, or os/architecture/variant.
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
