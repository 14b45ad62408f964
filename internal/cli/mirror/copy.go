package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxManifest   = 4 << 20 // bytes
	maxNodes      = 5_000   // manifests and blobs of an item
	maxCompanions = 200     // of a manifest
	attempts      = 4       // of an item
	firstDelay    = time.Second
)

// destination is where items are copied to.
type destination interface {
	// storage returns the storage for a repository, which is named without the prefix of the mirror.
	storage(repository string) (content.Storage, error)
	// name gives a manifest its name; the tag is empty if it has only a digest.
	name(ctx context.Context, d ocispec.Descriptor, repository, tag string) error
}

// Copier copies items.
type Copier struct {
	Registries *Registries
	To         destination
	MaxBytes   int64 // of all that is copied
	// Sleep waits before another attempt.
	Sleep func(context.Context, time.Duration) error
	// Retrying is called before another attempt.
	Retrying func(item Item, err error)

	copied  atomic.Int64
	indexes map[string]*helm.HTTP
}

// Copied describes a copied item.
type Copied struct {
	Name       string // repository with tag and digest
	Bytes      int64  // transferred
	Blobs      int64  // transferred, with manifests
	Skipped    int64  // already there
	Companions int    // signatures and other manifests that refer to it
}

// Copy copies an item with what refers to it. It tries again after temporary errors. Content that is already there is
// not transferred again, so an interrupted copy is resumed by the next one.
func (c *Copier) Copy(ctx context.Context, item Item) (*Copied, error) {
	var result *Copied
	err := c.retry(ctx, item, func() error {
		s, err := c.resolve(ctx, item)
		if err == nil {
			result, err = c.copy(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot copy %s: %w", item.Name(), err)
	}
	return result, nil
}

func (c *Copier) retry(ctx context.Context, item Item, try func() error) error {
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || attempt == attempts || !isTemporary(err) || ctx.Err() != nil {
			return err
		}
		c.Retrying(item, err)
		if err := c.Sleep(ctx, delay); err != nil {
			return err
		}
		delay *= 2
	}
}

// copy copies the content of a source, then what refers to it. The name is written last.
func (c *Copier) copy(ctx context.Context, s *source) (*Copied, error) {
	to, err := c.To.storage(s.repository)
	if err != nil {
		return nil, err
	}
	result := &Copied{Name: s.repository}
	if s.tag != "" {
		result.Name += ":" + s.tag
	}
	result.Name += "@" + s.root.Digest.String()
	companions, err := s.companions(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.graph(ctx, s, to, s.root, result); err != nil {
		return nil, err
	}
	for _, companion := range companions {
		if err := c.graph(ctx, s, to, companion.root, result); err != nil {
			return nil, fmt.Errorf("a signature or other manifest that refers to it: %w", err)
		}
		if err := c.To.name(ctx, companion.root, s.repository, companion.tag); err != nil {
			return nil, err
		}
	}
	result.Companions = len(companions)
	return result, c.To.name(ctx, s.root, s.repository, s.tag)
}

// graph copies a manifest with all that it contains.
func (c *Copier) graph(ctx context.Context, from content.ReadOnlyStorage, to content.Storage, root ocispec.Descriptor,
	result *Copied) error {
	var nodes, bytes, blobs, skipped atomic.Int64
	err := oras.CopyGraph(ctx, &verified{from}, to, root, oras.CopyGraphOptions{
		MaxMetadataBytes: maxManifest,
		PreCopy: func(_ context.Context, d ocispec.Descriptor) error {
			if d.Size < 0 || nodes.Add(1) > maxNodes {
				return fmt.Errorf("%w: it has more than %d parts, or a part of a negative size", errLimit, maxNodes)
			}
			if c.copied.Add(d.Size) > c.MaxBytes {
				return fmt.Errorf("%w: more than %d bytes would be copied. Raise --max-size", errLimit, c.MaxBytes)
			}
			return nil
		},
		PostCopy: func(_ context.Context, d ocispec.Descriptor) error {
			bytes.Add(d.Size)
			blobs.Add(1)
			return nil
		},
		OnCopySkipped: func(context.Context, ocispec.Descriptor) error {
			skipped.Add(1)
			return nil
		},
	})
	result.Bytes += bytes.Load()
	result.Blobs += blobs.Load()
	result.Skipped += skipped.Load()
	return err
}

// verified is a storage whose content fails to read if it does not have the size and digest of its descriptor.
type verified struct{ content.ReadOnlyStorage }

// Fetch implements [content.Fetcher].
func (v *verified) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := d.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("the digest %.100q is invalid", d.Digest)
	}
	body, err := v.ReadOnlyStorage.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	return &checkedBody{ReadCloser: body, want: d, digester: d.Digest.Algorithm().Digester()}, nil
}

// errWrongContent is the error for content that does not match its descriptor.
var errWrongContent = errors.New("the content does not have the digest and size that its manifest states")

type checkedBody struct {
	io.ReadCloser
	want     ocispec.Descriptor
	digester digest.Digester
	read     int64
}

// Read implements [io.Reader].
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if _, hashErr := b.digester.Hash().Write(p[:n]); hashErr != nil {
		return n, hashErr
	}
	if b.read > b.want.Size || err == io.EOF && b.read != b.want.Size ||
		b.read == b.want.Size && b.digester.Digest() != b.want.Digest {
		// Without the last bytes: callers that have all bytes ignore the error.
		return 0, fmt.Errorf("%s: %w", b.want.Digest, errWrongContent)
	}
	return n, err
}

func isNotFound(err error) bool {
	var response *errcode.ErrorResponse
	return errors.Is(err, errdef.ErrNotFound) ||
		errors.As(err, &response) && response.StatusCode == http.StatusNotFound
}

// isTemporary reports whether another attempt may succeed.
func isTemporary(err error) bool {
	var response *errcode.ErrorResponse
	if errors.As(err, &response) {
		return response.StatusCode >= http.StatusInternalServerError ||
			response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusRequestTimeout
	}
	if f := fault.As(err); f != nil && f.Terminal {
		return false
	}
	for _, final := range []error{errWrongContent, errdef.ErrNotFound, errdef.ErrSizeExceedsLimit,
		errdef.ErrInvalidReference, errLimit} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

// errLimit is the error for input that exceeds a limit.
var errLimit = errors.New("a limit is exceeded")
