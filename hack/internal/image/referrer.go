package image

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of what refers to an image.
const (
	spdxType   = "application/spdx+json"
	inTotoType = "application/vnd.in-toto+json"
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
)

const emptyConfigType = "application/vnd.oci.empty.v1+json"

// emptyConfig is the config of artifacts without one, as the OCI image specification defines it.
var emptyConfig = []byte("{}")

// ocispecDescriptor is a descriptor in a manifest.
type ocispecDescriptor struct {
	MediaType string  `json:"mediaType"`
	Digest    v1.Hash `json:"digest"`
	Size      int64   `json:"size"`
}

// referrer is an artifact with one document that refers to an image.
type referrer struct {
	subject     ocispecDescriptor
	kind        string // media type of the document, and type of the artifact
	content     []byte
	created     time.Time
	annotations map[string]string

	manifest []byte
	layer    v1.Layer
	image    v1.Image
}

// build builds the artifact.
func (r *referrer) build() error {
	config, _, err := v1.SHA256(bytes.NewReader(emptyConfig))
	if err != nil {
		return err
	}
	content, size, err := v1.SHA256(bytes.NewReader(r.content))
	if err != nil {
		return err
	}
	annotations := map[string]string{ocispec.AnnotationCreated: r.created.Format(time.RFC3339)}
	maps.Copy(annotations, r.annotations)
	r.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": types.OCIManifestSchema1, "artifactType": r.kind,
		"config":  ocispecDescriptor{MediaType: emptyConfigType, Digest: config, Size: int64(len(emptyConfig))},
		"layers":  []ocispecDescriptor{{MediaType: r.kind, Digest: content, Size: size}},
		"subject": r.subject, "annotations": annotations,
	})
	if err != nil {
		return err
	}
	r.layer = static.NewLayer(r.content, types.MediaType(r.kind))
	r.image, err = partial.CompressedToImage(core{r})
	return err
}

// core implements [partial.CompressedImageCore].
type core struct{ *referrer }

// RawConfigFile returns the empty config.
func (c core) RawConfigFile() ([]byte, error) { return emptyConfig, nil }

// MediaType returns the media type of manifests.
func (c core) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest returns the manifest.
func (c core) RawManifest() ([]byte, error) { return c.manifest, nil }

// LayerByDigest returns the layer of the document.
func (c core) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	own, err := c.layer.Digest()
	if err == nil && digest != own {
		err = io.ErrUnexpectedEOF
	}
	return c.layer, err
}
