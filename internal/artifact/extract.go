package artifact

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// limits are the limits for reading an archive.
type limits struct {
	bytes   int64 // total size of all files
	entries int
	depth   int // of directories
	name    int // bytes of a path or of the target of a link
}

var archiveLimits = limits{bytes: 1 << 30, entries: 500_000, depth: 256, name: 4096}

// Memory of an entry besides its content: its header and name while it is read, and its part of the tree.
const entryBytes = 1500

// ReadArchive reads a .tar.gz into a tree in memory. It returns an error for entries and links that lead out of the
// root, devices, names that [Tree.Check] refuses, and archives of more than 1 GiB unpacked or 500,000 entries. Nested
// archives are ordinary files and are not unpacked.
//
// The tree has a lease of the memory budget until it is no longer used. An archive that needs more than the budget is
// refused. If it needs more than is free, it waits, see [guard.Budget].
func ReadArchive(ctx context.Context, r io.Reader) (*Tree, error) {
	lease := guard.NewLease(ctx, "unpacking an archive")
	tree, err := archiveLimits.read(ctx, r, lease)
	if err != nil {
		lease.Release()
		return nil, err
	}
	guard.HoldWhile(lease, tree)
	return tree, nil
}

// read reads an archive. It takes the memory of each entry before it reads it.
func (l limits) read(ctx context.Context, r io.Reader, memory *guard.Lease) (*Tree, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	// Headers and padding are at most 4096 bytes per entry.
	t := tar.NewReader(&capped{Reader: z, left: l.bytes + int64(l.entries)*4096, err: l.tooLarge()})
	files, directories, left := map[string]file{}, paths{}, l.bytes
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if n >= l.entries {
			return nil, fmt.Errorf("the archive has more than %d entries", l.entries)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // the commit, written by git archive
		}
		if h.Size < 0 || h.Size > left {
			return nil, l.tooLarge()
		}
		name, err := l.nameOf(h)
		if err != nil {
			return nil, err
		}
		if name == "." {
			continue // the root
		}
		needs := int64(entryBytes) * int64(1+directories.add(path.Dir(name)))
		if h.Typeflag == tar.TypeReg {
			needs += h.Size
		}
		if err := cmp.Or(ctx.Err(), memory.Take(ctx, needs)); err != nil {
			return nil, err
		}
		f, err := l.fileOf(name, h, t, files)
		if err != nil {
			return nil, err
		}
		if left -= int64(len(f.data)); left < 0 {
			return nil, l.tooLarge()
		}
		files[name] = f
	}
	tree := newMemoryTree(files)
	return tree, tree.Check()
}

// paths are the directories of an archive's entries, including directories without an entry.
type paths map[string]bool

// add adds a directory and its parents, and returns how many were added.
func (p paths) add(dir string) (n int) {
	for ; dir != "." && !p[dir]; dir = path.Dir(dir) {
		p[dir] = true
		n++
	}
	return n
}

func (l limits) tooLarge() error {
	return fmt.Errorf("the archive unpacks to more than %d bytes", l.bytes)
}

// capped fails when more than left bytes are read.
type capped struct {
	io.Reader
	left int64
	err  error
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, c.err
	}
	return n, err
}

func (l limits) nameOf(h *tar.Header) (string, error) {
	name := path.Clean(h.Name)
	switch {
	case !utf8.ValidString(h.Name) || !utf8.ValidString(h.Linkname):
		return "", fmt.Errorf("the archive's entry %.100q has a name that is not UTF-8 text", h.Name)
	case !fs.ValidPath(name) || name == "." && h.Typeflag != tar.TypeDir:
		return "", fmt.Errorf("the archive's entry %.100q leads out of it", h.Name)
	case len(h.Name) > l.name || len(h.Linkname) > l.name || strings.Count(name, "/") >= l.depth:
		return "", fmt.Errorf("the name of the archive's entry %.100q... is too long", h.Name)
	}
	return name, nil
}

func (l limits) fileOf(name string, h *tar.Header, r io.Reader, before map[string]file) (file, error) {
	switch h.Typeflag {
	case tar.TypeReg:
		data := make([]byte, h.Size) // taken from the budget
		_, err := io.ReadFull(r, data)
		if h.Mode&0o111 != 0 {
			return file{0o755, data}, err
		}
		return file{0o644, data}, err
	case tar.TypeDir:
		return file{mode: directoryMode}, nil
	case tar.TypeSymlink:
		if path.IsAbs(h.Linkname) || !fs.ValidPath(path.Join(path.Dir(name), h.Linkname)) {
			return file{}, fmt.Errorf("the archive's symlink %.100q leads out of it", h.Name)
		}
		return file{fs.ModeSymlink | 0o777, []byte(h.Linkname)}, nil
	case tar.TypeLink: // to an earlier file; it is read as a copy
		f, ok := before[path.Clean(h.Linkname)]
		if !ok || !f.mode.IsRegular() {
			return file{}, fmt.Errorf("the archive's hard link %.100q leads to no file of it", h.Name)
		}
		return f, nil
	default:
		return file{}, fmt.Errorf("the archive's entry %.100q is of type %q: only files, directories and links "+
			"are allowed", h.Name, h.Typeflag)
	}
}

// maxDownload bounds the bytes of an archive, compressed.
const maxDownload = 512 << 20

// readVerified reads a .tar.gz into a tree. It returns an error if all of r does not have the digest, or has more than
// most bytes.
func readVerified(ctx context.Context, r io.Reader, digest string, most int64) (*Tree, error) {
	h, err := newHash(digest)
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: r, N: most + 1}
	body := io.TeeReader(limited, h)
	tree, readErr := ReadArchive(ctx, body)
	if _, err := io.Copy(io.Discard, body); err != nil {
		return nil, errors.Join(readErr, err)
	}
	algorithm, _, _ := strings.Cut(digest, ":")
	got := algorithm + ":" + hex.EncodeToString(h.Sum(nil))
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("the archive has more than %d bytes", most)
	case got != digest:
		return nil, fmt.Errorf("the archive has the digest %s, expected %s", got, digest)
	case readErr != nil:
		return nil, invalidArchive{readErr}
	}
	return tree, nil
}

// invalidArchive is the error of an archive that has the expected digest, but cannot be unpacked.
type invalidArchive struct{ error }

func (e invalidArchive) Unwrap() error { return e.error }

func newHash(digest string) (hash.Hash, error) {
	switch algorithm, _, _ := strings.Cut(digest, ":"); algorithm {
	case "sha256":
		return sha256.New(), nil
	case "sha384":
		return sha512.New384(), nil
	case "sha512":
		return sha512.New(), nil
	default:
		return nil, fmt.Errorf("the digest %q is of no known algorithm: sha256, sha384 and sha512 are", digest)
	}
}
