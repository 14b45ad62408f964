package notation

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/notaryproject/notation-go/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxEnvelope is the maximum size, in bytes, of a signature. It bounds the keys of its certificates, and so the time
// that the library takes before it checks them.
const maxEnvelope = 64 << 10

// repository implements the library's access to a registry with our transport and credentials.
type repository struct {
	name   name.Repository
	access []remote.Option
}

var _ registry.Repository = repository{}

// Resolve returns the descriptor of a digest.
func (r repository) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	d, err := remote.Head(r.name.Digest(reference), r.access...)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return descriptor(*d), nil
}

// ListSignatures calls each with the signatures that refer to an artifact.
func (r repository) ListSignatures(_ context.Context, of ocispec.Descriptor,
	each func([]ocispec.Descriptor) error) error {
	index, err := remote.Referrers(r.name.Digest(of.Digest.String()), r.access...)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	var found []ocispec.Descriptor
	for _, d := range manifest.Manifests {
		if d.ArtifactType == registry.ArtifactTypeNotation {
			found = append(found, descriptor(d))
		}
	}
	return each(found)
}

// FetchSignatureBlob returns the signature in a manifest.
func (r repository) FetchSignatureBlob(_ context.Context, of ocispec.Descriptor) ([]byte, ocispec.Descriptor, error) {
	fail := func(err error) ([]byte, ocispec.Descriptor, error) { return nil, ocispec.Descriptor{}, err }
	image, err := remote.Image(r.name.Digest(of.Digest.String()), r.access...)
	if err != nil {
		return fail(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return fail(err)
	}
	if len(manifest.Layers) != 1 {
		return fail(fmt.Errorf("signature %s does not have exactly one layer", of.Digest))
	}
	layer, err := remote.Layer(r.name.Digest(manifest.Layers[0].Digest.String()), r.access...)
	if err != nil {
		return fail(err)
	}
	body, err := layer.Compressed()
	if err != nil {
		return fail(err)
	}
	defer body.Close() // only read
	envelope, err := readAll(body, maxEnvelope)
	if err != nil {
		return fail(err)
	}
	return envelope, descriptor(manifest.Layers[0]), nil
}

// PushSignature returns an error: the repository is read-only.
func (repository) PushSignature(context.Context, string, []byte, ocispec.Descriptor, map[string]string) (blob,
	manifest ocispec.Descriptor, err error) {
	return blob, manifest, errors.New("the repository is read-only")
}

func descriptor(d v1.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{
		MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size,
		ArtifactType: d.ArtifactType, Annotations: d.Annotations,
	}
}
