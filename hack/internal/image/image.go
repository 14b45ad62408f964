// Package image assembles the container image of Sluice without a container engine: an image for each platform that
// contains a static binary, and what describes it, which refers to it.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
)

// project is the address of the project.
const project = "https://github.com/sluice-gitops/sluice"

// Binary is a built binary.
type Binary struct {
	Target compile.Target
	File   string
}

// Image is the image of all platforms, with what refers to it.
type Image struct {
	Version   string
	Digest    v1.Hash // of the index
	source    compile.Source
	toolchain string
	platforms []string
	index     v1.ImageIndex
	referrers []*referrer
}

// New returns the image of a source, with an SBOM and a provenance of each platform.
func New(ctx context.Context, source compile.Source, binaries []Binary) (*Image, error) {
	base, err := baseLayer()
	if err != nil {
		return nil, err
	}
	toolchain, err := compile.Toolchain(ctx, source.Dir)
	if err != nil {
		return nil, err
	}
	i := &Image{Version: source.Version, source: source, toolchain: toolchain}
	i.index = mutate.Annotations(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		annotations(source)).(v1.ImageIndex)
	for _, b := range binaries {
		if err := i.add(base, b); err != nil {
			return nil, fmt.Errorf("cannot make the image for %s: %w", b.Target, err)
		}
	}
	i.Digest, err = i.index.Digest()
	return i, err
}

// add adds the image of a platform.
func (i *Image) add(base v1.Layer, b Binary) error {
	image, err := platformImage(i.source, base, b)
	if err != nil {
		return err
	}
	subject, err := descriptor(image)
	if err != nil {
		return err
	}
	i.index = mutate.AppendManifests(i.index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
		Platform: &v1.Platform{OS: b.Target.OS, Architecture: b.Target.Arch}}})
	i.platforms = append(i.platforms, b.Target.String())
	bill, err := billOfMaterials(i.source, b, subject.Digest)
	if err != nil {
		return err
	}
	provenance, err := provenanceOf(i.source, i.toolchain, b.Target.String(), subject.Digest)
	if err != nil {
		return err
	}
	return errors.Join(i.refer(&referrer{subject: subject, kind: spdxType, content: bill}),
		i.refer(&referrer{subject: subject, kind: inTotoType, content: provenance,
			annotations: map[string]string{"in-toto.io/predicate-type": provenanceType}}))
}

// refer adds an artifact that refers to a manifest of the image.
func (i *Image) refer(r *referrer) error {
	r.created = i.source.Date
	i.referrers = append(i.referrers, r)
	return r.build()
}

// Signer signs in-toto statements and returns Sigstore bundles.
type Signer interface {
	Statement(ctx context.Context, statement []byte) ([]byte, error)
}

// Sign signs the image of all platforms, and its provenance, as `cosign sign` and `cosign attest` do.
func (i *Image) Sign(ctx context.Context, signer Signer) error {
	subject, err := descriptor(i.index)
	if err != nil {
		return err
	}
	signature, err := statement(i.Digest, signatureType, &structpb.Struct{})
	if err != nil {
		return err
	}
	provenance, err := provenanceOf(i.source, i.toolchain, strings.Join(i.platforms, ","), i.Digest)
	if err != nil {
		return err
	}
	for _, s := range []struct {
		kind string
		text []byte
	}{{kind: signatureType, text: signature}, {kind: provenanceType, text: provenance}} {
		bundle, err := signer.Statement(ctx, s.text)
		if err != nil {
			return err
		}
		if err := i.refer(&referrer{subject: subject, kind: bundleType, content: bundle, annotations: map[string]string{
			"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": s.kind}}); err != nil {
			return err
		}
	}
	return nil
}

func platformImage(source compile.Source, base v1.Layer, b Binary) (v1.Image, error) {
	binary, err := binaryLayer(b.File)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: source.Date}
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: b.Target.Arch, OS: b.Target.OS, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + binaryPath}, WorkingDir: "/",
			Env:    []string{"PATH=/usr/bin", "SSL_CERT_FILE=/" + rootsPath},
			Labels: annotations(source),
		},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "authorities and users"}},
		mutate.Addendum{Layer: binary, History: v1.History{Created: created, CreatedBy: "sluice"}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, annotations(source)).(v1.Image), nil
}

// annotations returns the annotations of manifests, which are the labels of images too.
func annotations(source compile.Source) map[string]string {
	return map[string]string{
		ocispec.AnnotationTitle:         "sluice",
		ocispec.AnnotationDescription:   "GitOps for Kubernetes: keep clusters in the state that git declares",
		ocispec.AnnotationSource:        project,
		ocispec.AnnotationURL:           project,
		ocispec.AnnotationDocumentation: project + "/tree/main/docs",
		ocispec.AnnotationVendor:        "sluice-gitops",
		ocispec.AnnotationLicenses:      "Apache-2.0",
		ocispec.AnnotationVersion:       source.Version,
		ocispec.AnnotationRevision:      source.Commit,
		ocispec.AnnotationCreated:       source.Date.Format(time.RFC3339),
	}
}

// Write writes the image and what refers to it as an OCI layout. It replaces the directory.
func (i *Image) Write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	err = path.AppendIndex(i.index, layout.WithAnnotations(map[string]string{ocispec.AnnotationRefName: i.Version}))
	for _, r := range i.referrers {
		if err == nil {
			err = path.AppendImage(r.image)
		}
	}
	return err
}

// Push pushes the image and what refers to it to a repository, and tags the image with its version. A tag that exists
// is moved only if the version is not a release.
func (i *Image) Push(ctx context.Context, repo name.Repository, options ...remote.Option) error {
	options = append(options, remote.WithContext(ctx), remote.WithJobs(runtime.GOMAXPROCS(0)))
	tag := repo.Tag(i.Version)
	if i.Version != compile.DevVersion {
		if d, err := remote.Head(tag, options...); err == nil && d.Digest != i.Digest {
			return fmt.Errorf("%s exists with another digest, %s: releases do not change. Choose another version", tag,
				d.Digest)
		}
	}
	if err := remote.WriteIndex(tag, i.index, options...); err != nil {
		return fmt.Errorf("cannot push %s: %w", tag, err)
	}
	for _, r := range i.referrers {
		digest, err := r.image.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(repo.Digest(digest.String()), r.image, options...); err != nil {
			return fmt.Errorf("cannot push the %s of %s: %w", r.kind, tag, err)
		}
	}
	return nil
}

// manifest is an index or an image.
type manifest interface {
	RawManifest() ([]byte, error)
	Digest() (v1.Hash, error)
	MediaType() (types.MediaType, error)
}

// descriptor returns the descriptor of a manifest.
func descriptor(m manifest) (ocispecDescriptor, error) {
	raw, err := m.RawManifest()
	if err != nil {
		return ocispecDescriptor{}, err
	}
	digest, err := m.Digest()
	if err != nil {
		return ocispecDescriptor{}, err
	}
	mediaType, err := m.MediaType()
	return ocispecDescriptor{MediaType: string(mediaType), Digest: digest, Size: int64(len(raw))}, err
}

func encode(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return append(b, '\n'), err
}
