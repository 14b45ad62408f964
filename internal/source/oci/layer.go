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

// Annotations with the origin of an artifact.
const (
	SourceAnnotation   = "org.opencontainers.image.source"
	RevisionAnnotation = "org.opencontainers.image.revision"
	CreatedAnnotation  = "org.opencontainers.image.created"
)

const (
	maxLayer       = 512 << 20 // bytes of a layer
	maxAnnotations = 64 << 10  // bytes; annotations become part of the object's status
)

// Image is a manifest and its layers.
type Image struct {
	Annotations map[string]string
	repo        *Repository
	digest      v1.Hash
	layers      []v1.Descriptor
}

// Pull returns the manifest with a digest. If the digest is that of an index, it returns the manifest for linux/amd64.
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
		return nil, fault.New(sourcev1.OCIPullFailedReason, "the annotations of '%s' exceed %d bytes",
			at.Name(), maxAnnotations).
			WithHint("Push the artifact with fewer annotations").Final()
	}
	return &Image{Annotations: maps.Clone(manifest.Annotations), repo: r, digest: digest, layers: manifest.Layers}, nil
}

// Layer returns the first layer with a media type, or the first layer if it is empty.
func (i *Image) Layer(mediaType string) (*Layer, error) {
	at := slices.IndexFunc(i.layers, func(d v1.Descriptor) bool {
		return mediaType == "" || string(d.MediaType) == mediaType
	})
	if at < 0 {
		var types []string
		for _, d := range i.layers[:min(len(i.layers), 10)] {
			types = append(types, fmt.Sprintf("'%.100s'", d.MediaType))
		}
		return nil, i.failed("has no layer of type '%s'", mediaType).
			WithHint("Correct spec.layerSelector.mediaType; the types of its layers are %s",
				strings.Join(types, ", ")).Final()
	}
	if i.layers[at].Size > maxLayer {
		return nil, i.failed("has a layer of %d bytes, which exceeds the limit of %d bytes", i.layers[at].Size,
			maxLayer).
			WithHint("Push a smaller layer, or select another one with spec.layerSelector.mediaType").Final()
	}
	return &Layer{i, i.layers[at]}, nil
}

// failed returns a fault that starts with the name of the image.
func (i *Image) failed(format string, args ...any) *fault.Fault {
	return fault.New(sourcev1.OCILayerOperationFailedReason, "'%s' "+format,
		append([]any{i.repo.At(i.digest).Name()}, args...)...)
}

// Layer is a layer of an image.
type Layer struct {
	image *Image
	d     v1.Descriptor
}

// Open returns the layer as it is stored. Reading fails at the end if the content does not match the digest.
func (l *Layer) Open(ctx context.Context) (*Blob, error) {
	// The layer is requested by its digest. URLs of other hosts in the manifest are not used.
	layer, err := l.image.repo.puller.Layer(l.image.repo.forBlob(ctx, l.d.Digest), l.image.repo.At(l.d.Digest))
	if err != nil {
		return nil, failed(err, "cannot pull the layer %s", l.d.Digest)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, failed(err, "cannot pull the layer %s", l.d.Digest)
	}
	return &Blob{ReadCloser: body, digest: l.d.Digest, left: l.d.Size, err: nil}, nil
}

// Blob is the content of a layer while it is read.
type Blob struct {
	io.ReadCloser
	digest v1.Hash
	left   int64 // bytes, from the manifest
	err    error
}

// Read implements [io.Reader].
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

// Err returns the error that ended reading, nil if there was none. It separates failures of the registry from those of
// the code that reads the blob.
func (b *Blob) Err() error { return b.err }

// Tree returns the files of the layer, which must be a .tar.gz archive. Files that are excluded by the rules of
// spec.ignore (the default exclusions if it is nil) and of .sourceignore files are left out. It fails if the layer does
// not match its digest.
func (l *Layer) Tree(ctx context.Context, spec *string) (*artifact.Tree, error) {
	body, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read
	tree, unpackErr := artifact.ReadArchive(ctx, body)
	_, _ = io.Copy(io.Discard, body) // the rest is part of the digest
	if err := body.Err(); err != nil {
		return nil, err
	}
	if fault.As(unpackErr) != nil { // of the memory budget
		return nil, unpackErr
	}
	if unpackErr != nil {
		return nil, l.image.failed("has a layer that cannot be extracted").Because(unpackErr).
			WithHint("A layer of type '%s' must be a .tar.gz, or set spec.layerSelector.operation to copy",
				l.d.MediaType).Final()
	}
	return without(tree, spec)
}

// without returns the tree without the files that the rules exclude.
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
	selected := tree.Select(func(name string, isDir bool) bool {
		r, base := of(path.Dir(name)), path.Base(name)
		return isDir && !r.ExcludesDir(base) || !isDir && !r.Excludes(base)
	})
	return selected, failure
}
