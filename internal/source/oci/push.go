package oci

import (
	"bytes"
	"context"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Media types of artifacts with manifests of Kubernetes objects, as clients of these APIs have always used them.
const (
	ContentType = "application/vnd.cncf.flux.content.v1.tar+gzip"
	ConfigType  = "application/vnd.cncf.flux.config.v1+json"
)

// Split splits the URL of an artifact, oci://host/path with :tag or @digest, into the URL of its repository and the
// reference.
func Split(raw string) (string, Reference) {
	if url, digest, ok := strings.Cut(raw, "@"); ok {
		url, _ = splitTag(url)
		return url, Reference{Digest: digest}
	}
	url, tag := splitTag(raw)
	return url, Reference{Tag: tag}
}

// splitTag splits a URL at the colon before its tag, if it has one.
func splitTag(raw string) (url, tag string) {
	if i := strings.LastIndexByte(raw, ':'); i > strings.LastIndexByte(raw, '/') {
		return raw[:i], raw[i+1:]
	}
	return raw, ""
}

// Push pushes a .tar.gz archive as an artifact with annotations, and returns its digest. The same content and
// annotations give the same digest.
func (r *Repository) Push(ctx context.Context, tag string, layer []byte, annotations map[string]string) (v1.Hash,
	error) {
	at, err := r.tag(tag)
	if err != nil {
		return v1.Hash{}, err
	}
	if _, err := artifact.ReadArchive(ctx, bytes.NewReader(layer)); err != nil {
		return v1.Hash{}, fault.New(meta.BuildFailedReason,
			"the content is not a .tar.gz archive that can be pulled again").
			Because(err).Final()
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		static.NewLayer(layer, ContentType))
	if err != nil {
		return v1.Hash{}, err
	}
	image = mutate.Annotations(mutate.ConfigMediaType(image, ConfigType), annotations).(v1.Image)
	if err := remote.Write(at, image, append(r.write, remote.WithContext(ctx))...); err != nil {
		return v1.Hash{}, failed(err, "cannot push '%s'", at.Name())
	}
	return image.Digest()
}

// Tag sets a tag to the artifact that a reference resolves to.
func (r *Repository) Tag(ctx context.Context, ref Reference, tag string) error {
	at, err := r.tag(tag)
	if err != nil {
		return err
	}
	revision, err := r.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	descriptor, err := r.puller.Get(ctx, r.At(revision.Digest))
	if err == nil {
		err = remote.Tag(at, descriptor, append(r.write, remote.WithContext(ctx))...)
	}
	if err != nil {
		return failed(err, "cannot tag '%s' as %s", r.At(revision.Digest).Name(), tag)
	}
	return nil
}

// tag returns the reference of a tag in the repository.
func (r *Repository) tag(tag string) (name.Tag, error) {
	at, err := name.NewTag(r.name.Name()+":"+tag, name.WeakValidation)
	if err != nil || tag == "" {
		return at, fault.New(meta.URLInvalidReason, "'%.200s' is not a valid tag", tag).
			WithHint("Tags consist of letters, digits, dots, dashes and underscores, up to 128 characters").Final()
	}
	at.Repository = r.name // the parsed one does not allow plain HTTP
	return at, nil
}
