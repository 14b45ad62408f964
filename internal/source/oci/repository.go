package oci

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	maxTags   = 100_000  // of a repository
	maxAnswer = 16 << 20 // bytes of an answer that is no blob
	maxBlob   = 1 << 30  // bytes of a blob
)

// insecureReason is the documented condition reason of what would go over HTTP.
const insecureReason = "InsecureConnectionsDisallowed"

// Access says how a registry is reached.
type Access struct {
	Transport http.RoundTripper
	Login     authn.AuthConfig // anonymous when empty
	Insecure  bool             // over HTTP if it does not speak HTTPS
}

// Guarded is the transport, with requests and answers kept within the bounds of this package.
func (a Access) Guarded() http.RoundTripper { return &guard{a.Transport, a.Insecure} }

// Repository is a repository in a registry. It stays logged in, so that a kept one asks for nothing but what
// is wanted. It is safe for concurrent use.
type Repository struct {
	name   name.Repository
	puller *remote.Puller
	write  []remote.Option
}

// Open returns the repository of a URL. It sends nothing.
func Open(rawURL string, a Access) (*Repository, error) {
	repo, err := ParseURL(rawURL, a.Insecure)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{
		remote.WithTransport(a.Guarded()),
		remote.WithAuth(authn.FromConfig(a.Login)),
		remote.WithUserAgent("sluice"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // who asked decides when to ask again
		remote.WithRetryStatusCodes(),
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, err
	}
	return &Repository{repo, puller, options}, nil
}

// Options give others the same access to the registry.
func (r *Repository) Options() []remote.Option { return []remote.Option{remote.Reuse(r.puller)} }

// At names a manifest of the repository.
func (r *Repository) At(digest v1.Hash) name.Digest { return r.name.Digest(digest.String()) }

// Resolve asks the registry what a reference stands for: one HEAD, and before it the list of tags for a range
// of versions.
func (r *Repository) Resolve(ctx context.Context, ref Reference) (Revision, error) {
	pinned, ok, err := ref.digest()
	if err != nil {
		return Revision{}, err
	}
	if ok {
		_, err := r.head(ctx, r.At(pinned))
		return Revision{Digest: pinned}, err
	}
	tag := ref.Tag
	if ref.SemVer != "" {
		tags, err := r.Tags(ctx)
		if err != nil {
			return Revision{}, err
		}
		if tag, err = highest(tags, ref.SemVer, ref.SemverFilter); err != nil {
			return Revision{}, err
		}
	}
	at, err := r.tag(cmp.Or(tag, defaultTag))
	if err != nil {
		return Revision{}, err
	}
	digest, err := r.head(ctx, at)
	return Revision{at.TagStr(), digest}, err
}

// Digest returns what a tag points to: one HEAD.
func (r *Repository) Digest(ctx context.Context, tag string) (v1.Hash, error) {
	at, err := r.tag(tag)
	if err != nil {
		return v1.Hash{}, err
	}
	return r.head(ctx, at)
}

// head returns the digest of a manifest. A registry that answers HEAD with less than the specification asks
// for is asked by GET.
func (r *Repository) head(ctx context.Context, ref name.Reference) (v1.Hash, error) {
	d, err := r.puller.Head(ctx, ref)
	if err == nil {
		return d.Digest, nil
	}
	var answer *transport.Error
	var network *url.Error
	if errors.As(err, &answer) && answer.StatusCode != http.StatusMethodNotAllowed || errors.As(err, &network) {
		return v1.Hash{}, failed(err, "cannot find '%s'", ref.Name())
	}
	got, err := r.puller.Get(ctx, ref)
	if err != nil {
		return v1.Hash{}, failed(err, "cannot find '%s'", ref.Name())
	}
	return got.Digest, nil
}

// Tags lists the tags of the repository.
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	lister, err := r.puller.Lister(ctx, r.name)
	if err != nil {
		return nil, failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	var tags []string
	for lister.HasNext() {
		page, err := lister.Next(ctx)
		if err != nil {
			return nil, failed(err, "cannot list the tags of '%s'", r.name.Name())
		}
		if tags = append(tags, page.Tags...); len(tags) > maxTags {
			return nil, fault.New(sourcev1.OCIPullFailedReason, "'%s' has more than %d tags", r.name.Name(), maxTags).
				WithHint("Follow a tag instead of a range of versions").Final()
		}
	}
	return tags, nil
}

// guard keeps requests and answers within bounds.
type guard struct {
	next     http.RoundTripper
	insecure bool
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !g.insecure {
		return nil, fault.New(insecureReason, "'%s' speaks HTTP, where anybody can listen", req.URL.Host).
			WithHint("Allow it by spec.insecure or --insecure-registry if that is wanted").Final()
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	most := int64(maxAnswer)
	if req.Response != nil || strings.Contains(req.URL.Path, "/blobs/") {
		most = maxBlob
	}
	resp.Body = &bounded{resp.Body, most}
	return resp, nil
}

// bounded fails when more than left bytes are read.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		// not every reader closes after an error
		return 0, errors.Join(errors.New("the registry's answer is too long"), b.Close())
	}
	return n, err
}

func failed(err error, format string, args ...any) error {
	return Explain(sourcev1.OCIPullFailedReason, err, format, args...)
}

// Explain says what failed and, as far as the registry's answer tells, what to do about it. The reason counts
// where the error tells no better one.
func Explain(reason string, err error, format string, args ...any) error {
	f := fault.New(reason, format, args...)
	var answer *transport.Error
	var network *url.Error
	switch {
	case errors.As(err, &answer):
		f.Err = answer
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			f.Reason = meta.AuthenticationFailedReason
			f.Hint = "Check the login, and what it may do. Some registries answer so for what is not there"
		case http.StatusNotFound:
			f.Hint = "Check the URL and the reference"
		}
	case errors.As(err, &network):
		f.Err = network.Err // without the URL: it may hold the signature of a redirect
	default:
		f.Err = err
	}
	if cause := fault.As(f.Err); cause != nil {
		f.RetryAfter, f.Terminal = cause.RetryAfter, cause.Terminal
		if cause.Reason != "" {
			f.Reason = cause.Reason
		}
	}
	return f
}
