package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

// Annotations that say what an artifact was made of.
const (
	SourceAnnotation   = "org.opencontainers.image.source"
	RevisionAnnotation = "org.opencontainers.image.revision"
	CreatedAnnotation  = "org.opencontainers.image.created"
)

const (
	maxLayer       = 512 << 20 // bytes of a layer
	maxAnnotations = 64 << 10  // bytes; they become part of the object's status
)

// Image is a manifest and its layers.
type Image struct {
	Annotations map[string]string
	repo        *Repository
	digest      v1.Hash
	layers      []v1.Descriptor
}

// Pull reads the manifest that a digest names. Of an index it is the one for linux/amd64.
func (r *Repository) Pull(ctx context.Context, digest v1.Hash) (*Image, error) {
	at := r.At(digest)
	got, err := r.puller.Get(ctx, at)
	if err != nil {
		return nil, failed(err, "cannot pull '%s'", at.Name())
	}
	image, err := got.Image()
	if err != nil {
		return nil, failed(err, "cannot pull '%s'", at.Name())
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, failed(err, "cannot read the manifest of '%s'", at.Name())
	}
	size := 0
	for k, v := range manifest.Annotations {
		size += len(k) + len(v)
	}
	if size > maxAnnotations {
		return nil, fault.New(sourcev1.OCIPullFailedReason, "the annotations of '%s' have more than %d bytes",
			at.Name(), maxAnnotations).
			WithHint("Push it with fewer").Final()
	}
	return &Image{maps.Clone(manifest.Annotations), r, digest, manifest.Layers}, nil
}

// Layer returns the first layer of a media type, the very first when it is empty.
func (i *Image) Layer(mediaType string) (*Layer, error) {
	at := slices.IndexFunc(i.layers, func(d v1.Descriptor) bool {
		return mediaType == "" ||
			string(d.MediaType) == mediaType
	})
	if at < 0 {
		var types []string
		for _, d := range i.layers[:min(len(i.layers), 10)] {
			types = append(types, fmt.Sprintf("'%.100s'", d.MediaType))
		}
		return nil, i.failed("has no layer of type '%s'", mediaType).
			WithHint("Correct spec.layerSelector.mediaType; its layers are of type %s",
				strings.Join(types, ", ")).Final()
	}
	if i.layers[at].Size > maxLayer {
		return nil, i.failed("has a layer of %d bytes, and %d are allowed", i.layers[at].Size, maxLayer).
			WithHint("Push less, or pick another layer in spec.layerSelector.mediaType").Final()
	}
	return &Layer{i, i.layers[at]}, nil
}

func (i *Image) failed(format string, args ...any) *fault.Fault {
	return fault.New(sourcev1.OCILayerOperationFailedReason, "'%s' "+format,
		append([]any{i.repo.At(i.digest).Name()}, args...)...)
}

// Layer is a layer of an image.
type Layer struct {
	image *Image
	d     v1.Descriptor
}

// Open returns the layer as it is. Reading fails at the end if it is not what its digest says.
func (l *Layer) Open(ctx context.Context) (*Blob, error) {
	// By its digest alone: a manifest may name other places to get a layer from, which nobody has to follow.
	layer, err := l.image.repo.puller.Layer(ctx, l.image.repo.At(l.d.Digest))
	if err != nil {
		return nil, failed(err, "cannot pull the layer %s", l.d.Digest)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, failed(err, "cannot pull the layer %s", l.d.Digest)
	}
	return &Blob{body, l.d.Digest, l.d.Size, nil}, nil
}

// Blob is the content of a layer while it is read.
type Blob struct {
	io.ReadCloser
	digest v1.Hash
	left   int64 // bytes, by the manifest
	err    error
}

func (b *Blob) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		n, err = 0, errors.New("it is larger than its manifest says")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = failed(err, "cannot pull the layer %s", b.digest)
		err = b.err
	}
	return n, err
}

// Err returns why reading failed, nil if it did not: whoever it was handed to may say it in other words.
func (b *Blob) Err() error { return b.err }

// Tree unpacks the layer, a .tar.gz, and leaves out what the rules in spec.ignore, the default exclusions if
// it is nil, and .sourceignore files exclude. Nothing of a layer that is not what its digest says is used.
func (l *Layer) Tree(ctx context.Context, spec *string) (*artifact.Tree, error) {
	body, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read
	tree, unpackErr := artifact.ReadArchive(body)
	_, _ = io.Copy(io.Discard, body) // the rest is digested too
	if err := body.Err(); err != nil {
		return nil, err
	}
	if unpackErr != nil {
		return nil, l.image.failed("has a layer that cannot be extracted").Because(unpackErr).
			WithHint("A layer of type '%s' must be a .tar.gz, or set spec.layerSelector.operation to copy",
				l.d.MediaType).Final()
	}
	return without(tree, spec)
}

// without leaves out what is ignored.
func without(tree *artifact.Tree, spec *string) (*artifact.Tree, error) {
	rules := map[string]ignore.Rules{}
	var failure error
	var of func(dir string) ignore.Rules
	of = func(dir string) ignore.Rules {
		if r, ok := rules[dir]; ok {
			return r
		}
		r := ignore.New(spec)
		if dir != "." {
			r = of(path.Dir(dir)).Enter(path.Base(dir))
		}
		file := path.Join(dir, ignore.File)
		if info, err := tree.Lstat(file); err == nil && info.Mode().IsRegular() {
			content, err := tree.ReadFile(file)
			failure = errors.Join(failure, err)
			r = r.With(string(content))
		}
		rules[dir] = r
		return r
	}
	selected := tree.Select(func(name string) bool { return !of(path.Dir(name)).Excludes(path.Base(name)) })
	return selected, failure
}
