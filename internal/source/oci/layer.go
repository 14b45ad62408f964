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
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/text/fault"
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
	if len(i.layers) == 0 {
		return nil, i.failed("has no layers, so there is nothing to apply").
			WithHint("Push the files as its first layer, for example with 'sluice push artifact'").Final()
	}
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
	selected, err := without(ctx, tree, spec)
	if err != nil {
		f := l.image.failed("has a layer whose ignore rules cannot be applied").Because(err)
		if limit := new(ignore.LimitError); errors.As(err, &limit) {
			return nil, f.WithHint(ignore.LimitHint).Final()
		}
		return nil, f
	}
	return selected, nil
}

// without returns the tree without the files that the rules exclude.
func without(ctx context.Context, tree *artifact.Tree, spec *string) (*artifact.Tree, error) {
	top, err := ignore.New(spec)
	if err != nil {
		return nil, err
	}
	s := &selection{tree: tree, top: top}
	selected := tree.Select(func(name string, isDir bool) bool {
		if s.err == nil {
			s.err = ctx.Err() // many rules take long
		}
		if s.err != nil {
			return false // the rest is not used
		}
		r, base := s.rules(path.Dir(name)), path.Base(name)
		return isDir && !r.ExcludesDir(base) || !isDir && !r.Excludes(base)
	})
	if s.err != nil {
		return nil, s.err
	}
	return selected, nil
}

// selection is the rules of a tree while it is walked.
type selection struct {
	tree    *artifact.Tree
	top     ignore.Rules
	entered []entered // the directory of the last file, after those that it is in; rules of others take no memory
	err     error     // the first one
}

// entered is a directory and its rules.
type entered struct {
	dir   string
	rules ignore.Rules
}

// rules returns the rules of a directory.
func (s *selection) rules(dir string) ignore.Rules {
	for n := len(s.entered) - 1; n >= 0; n-- {
		last := s.entered[n]
		if last.dir == dir {
			return last.rules
		}
		if last.dir == "." || strings.HasPrefix(dir, last.dir+"/") {
			break
		}
		s.entered = s.entered[:n]
	}
	r := s.top
	if dir != "." {
		r = s.rules(path.Dir(dir)).Enter(path.Base(dir))
	}
	file := path.Join(dir, ignore.File)
	if info, err := s.tree.Lstat(file); err == nil && info.Mode().IsRegular() && s.err == nil {
		r, s.err = s.with(r, file, info.Size())
	}
	s.entered = append(s.entered, entered{dir, r})
	return r
}

// with returns the rules with those of a file added.
func (s *selection) with(r ignore.Rules, file string, size int64) (ignore.Rules, error) {
	if err := ignore.CheckSize(file, size); err != nil {
		return r, err
	}
	content, err := s.tree.ReadFile(file)
	if err != nil {
		return r, err
	}
	return r.With(string(content))
}
