package mirror

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
)

const (
	maxEntries = 200_000  // files of an archive
	maxIndex   = 16 << 20 // bytes
)

// partialSuffix is the suffix of the directory with the content of an archive that is not complete.
const partialSuffix = ".partial"

// Archive is an archive that is written: an OCI layout in a tar file. Until it is complete its content is in a
// directory next to it, which the next attempt continues with.
type Archive struct {
	directory
	file string
}

// NewArchive starts an archive, or continues one.
func NewArchive(ctx context.Context, file string) (*Archive, error) {
	store, err := oci.NewWithContext(ctx, file+partialSuffix)
	if err != nil {
		return nil, fmt.Errorf("cannot use the directory %s. Remove it to start again: %w", file+partialSuffix, err)
	}
	return &Archive{directory: directory{store: store}, file: file}, nil
}

// Close writes the tar file and removes the directory.
func (a *Archive) Close() error {
	temporary := a.file + ".tmp"
	out, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	err = errors.Join(writeTar(out, a.file+partialSuffix), out.Sync(), out.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", a.file, err), os.Remove(temporary))
	}
	return errors.Join(os.Rename(temporary, a.file), os.RemoveAll(a.file+partialSuffix))
}

// layoutFile is the syntax of the files of an OCI layout.
var layoutFile = regexp.MustCompile(`^(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}|blobs/sha512/[0-9a-f]{128})$`)

// writeTar writes the files of a layout, sorted by name and without times, so that the same content gives the same
// archive.
func writeTar(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || !layoutFile.MatchString(filepath.ToSlash(name)) {
			return err
		}
		if name == "index.json" {
			return writeIndex(w, path)
		}
		return writeFile(w, filepath.ToSlash(name), path)
	})
	return errors.Join(err, w.Close())
}

// writeIndex writes the index with only the manifests that have a name, sorted.
func writeIndex(w *tar.Writer, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return err
	}
	name := func(d ocispec.Descriptor) string { return d.Annotations[ocispec.AnnotationRefName] }
	index.Manifests = slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool { return name(d) == "" })
	slices.SortFunc(index.Manifests, func(a, b ocispec.Descriptor) int { return strings.Compare(name(a), name(b)) })
	if text, err = json.Marshal(index); err != nil {
		return err
	}
	if err := w.WriteHeader(header("index.json", int64(len(text)))); err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX}
}

func writeFile(w *tar.Writer, name, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(header(name, info.Size())); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

// Reader reads an archive without unpacking it.
type Reader struct {
	file    *os.File
	content map[string]section // by name
	Names   []Named
}

// Named is a manifest with a name in an archive.
type Named struct {
	Repository string `json:"repository"`
	Tag        string `json:"tag,omitempty"`
	root       ocispec.Descriptor
}

type section struct{ offset, size int64 }

// Open opens an archive. It reads the list of files and the index, and refuses what is not an OCI layout.
func Open(file string) (*Reader, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	r := &Reader{file: f, content: map[string]section{}}
	err = r.scan()
	if err == nil {
		err = r.readIndex()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not an archive of sluice mirror: %w", file, err), f.Close())
	}
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// scan notes where the content of each file is.
func (r *Reader) scan() error {
	for t := tar.NewReader(r.file); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Typeflag != tar.TypeReg || !layoutFile.MatchString(h.Name) {
			return fmt.Errorf("it contains %.100q, which is not part of an OCI layout", h.Name)
		}
		if _, ok := r.content[h.Name]; ok {
			return fmt.Errorf("it contains %.100q twice", h.Name)
		}
		if len(r.content) == maxEntries {
			return fmt.Errorf("it contains more than %d files", maxEntries)
		}
		offset, err := r.file.Seek(0, io.SeekCurrent) // the reader does not read ahead
		if err != nil {
			return err
		}
		r.content[h.Name] = section{offset: offset, size: h.Size}
	}
}

func (r *Reader) readIndex() error {
	at, ok := r.content["index.json"]
	if !ok {
		return errors.New("it has no index.json")
	}
	if at.size > maxIndex {
		return fmt.Errorf("its index.json has more than %d bytes", maxIndex)
	}
	var index ocispec.Index
	if err := json.NewDecoder(io.NewSectionReader(r.file, at.offset, at.size)).Decode(&index); err != nil {
		return fmt.Errorf("its index.json is not readable: %w", err)
	}
	for _, d := range index.Manifests {
		named, err := parseNamed(d)
		if err != nil {
			return err
		}
		r.Names = append(r.Names, named)
	}
	// what refers to a manifest after the manifest, as some registries require
	slices.SortStableFunc(r.Names, func(a, b Named) int { return strings.Compare(a.Repository, b.Repository) })
	return nil
}

// parseNamed checks the name of a manifest and its descriptor.
func parseNamed(d ocispec.Descriptor) (Named, error) {
	name := d.Annotations[ocispec.AnnotationRefName]
	ref, err := registry.ParseReference(name)
	if err != nil || ref.Reference == "" || strings.ContainsFunc(name, isNotASCII) {
		return Named{}, fmt.Errorf("its index.json has a manifest with the name %.200q, which is not a reference", name)
	}
	if err := d.Digest.Validate(); err != nil || d.Size < 0 || d.Size > maxManifest {
		return Named{}, fmt.Errorf("the digest or the size of %.200q is invalid", name)
	}
	n := Named{Repository: ref.Registry + "/" + ref.Repository, root: d}
	if pinned, err := ref.Digest(); err == nil {
		if pinned != d.Digest {
			return Named{}, fmt.Errorf("%.200q has another digest, %s", name, d.Digest)
		}
	} else {
		n.Tag = ref.Reference
	}
	return n, nil
}

func isNotASCII(r rune) bool { return r > unicode.MaxASCII }

// Fetch implements [content.Fetcher].
func (r *Reader) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	at, ok := r.content[blobName(d.Digest)]
	if !ok {
		return nil, fmt.Errorf("%s: %w in the archive", d.Digest, errdef.ErrNotFound)
	}
	if at.size != d.Size {
		return nil, fmt.Errorf("%s: %w", d.Digest, errWrongContent)
	}
	return io.NopCloser(io.NewSectionReader(r.file, at.offset, at.size)), nil
}

// Exists implements [content.ReadOnlyStorage].
func (r *Reader) Exists(_ context.Context, d ocispec.Descriptor) (bool, error) {
	_, ok := r.content[blobName(d.Digest)]
	return ok, nil
}

func blobName(d digest.Digest) string { return "blobs/" + d.Algorithm().String() + "/" + d.Encoded() }

// Restore copies a manifest of an archive.
func (c *Copier) Restore(ctx context.Context, r *Reader, n Named) (*Copied, error) {
	var result *Copied
	item := Item{Kind: Image, Repository: n.Repository, Tag: n.Tag, Digest: n.root.Digest.String()}
	err := c.retry(ctx, item, func() error {
		var err error
		result, err = c.copy(ctx, &source{ReadOnlyStorage: r, repository: n.Repository, tag: n.Tag, root: n.root})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot copy %s: %w", item.Name(), err)
	}
	return result, nil
}
