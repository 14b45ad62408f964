package oci

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxTags     = 100_000  // of a repository, with those that are not valid
	maxResponse = 16 << 20 // bytes of a response that does not contain a blob
	maxValues   = 50_000   // JSON values of such a response; a layer of "{}" takes 70 times its size in memory
	maxBlob     = 1 << 30  // bytes of a blob

	maxLoopbackPorts = 100
)

// insecureReason is the documented condition reason for a refused connection over plain HTTP.
const insecureReason = "InsecureConnectionsDisallowed"

// Access is how to connect to a registry.
type Access struct {
	Transport http.RoundTripper
	Login     authn.AuthConfig // anonymous if empty
	Insecure  bool             // fall back to plain HTTP if the server does not support HTTPS; loopback hosts always do
}

// Limited returns the transport with the limits of this package: responses are bounded, and plain HTTP is
// refused unless Insecure is set or the host is a loopback host.
func (a Access) Limited() http.RoundTripper { return &limiter{next: a.Transport, insecure: a.Insecure} }

// Repository is a repository in a registry. It keeps its login, so reusing it saves the requests for a new one. It is
// safe for concurrent use.
type Repository struct {
	name   name.Repository
	login  authn.AuthConfig
	puller *remote.Puller
	write  []remote.Option
}

// Open returns the repository with a URL. It sends no request.
func Open(rawURL string, a Access) (*Repository, error) {
	repo, err := ParseURL(rawURL, a.Insecure)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{
		remote.WithTransport(a.Limited()),
		remote.WithAuth(authn.FromConfig(a.Login)),
		remote.WithUserAgent("sluice"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // the caller retries
		remote.WithRetryStatusCodes(),
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, err
	}
	return &Repository{name: repo, login: a.Login, puller: puller, write: options}, nil
}

// Options returns options for requests with the login of the repository.
func (r *Repository) Options() []remote.Option { return []remote.Option{remote.Reuse(r.puller)} }

// WriteOptions returns options for requests that push, with the login of the repository.
func (r *Repository) WriteOptions() []remote.Option { return slices.Clone(r.write) }

// At returns the reference of a manifest in the repository.
func (r *Repository) At(digest v1.Hash) name.Digest { return r.name.Digest(digest.String()) }

// Resolve returns the digest of a reference. It sends one HEAD request, and before that lists the tags if the reference
// is a range of versions.
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
		if tag, err = ref.highest(tags); err != nil {
			return Revision{}, err
		}
	}
	at, err := r.tag(cmp.Or(tag, defaultTag))
	if err != nil {
		return Revision{}, err
	}
	digest, err := r.head(ctx, at)
	if isNotFound(err) {
		err = r.withNearest(ctx, at.TagStr(), err)
	}
	return Revision{at.TagStr(), digest}, err
}

// Digest returns the digest of a tag. It sends one HEAD request.
func (r *Repository) Digest(ctx context.Context, tag string) (v1.Hash, error) {
	at, err := r.tag(tag)
	if err != nil {
		return v1.Hash{}, err
	}
	return r.head(ctx, at)
}

// head returns the digest of a manifest. It falls back to GET if the response to HEAD lacks required headers.
func (r *Repository) head(ctx context.Context, ref name.Reference) (v1.Hash, error) {
	d, err := r.puller.Head(ctx, ref)
	if err == nil {
		return d.Digest, nil
	}
	var response *transport.Error
	var network *url.Error
	if errors.As(err, &response) && response.StatusCode != http.StatusMethodNotAllowed || errors.As(err, &network) {
		return v1.Hash{}, r.failed(err, "cannot find '%s'", ref.Name())
	}
	got, err := r.puller.Get(ctx, ref)
	if err != nil {
		return v1.Hash{}, r.failed(err, "cannot find '%s'", ref.Name())
	}
	return got.Digest, nil
}

// Tags lists the tags of the repository, of at most 128 bytes each.
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	lister, err := r.puller.Lister(ctx, r.name)
	if err != nil {
		return nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	var tags []string
	listed := 0
	for lister.HasNext() {
		page, err := lister.Next(ctx)
		if err != nil {
			return nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
		}
		if listed += len(page.Tags); listed > maxTags {
			return nil, fault.New(sourcev1.OCIPullFailedReason, "'%s' has more than %d tags", r.name.Name(), maxTags).
				WithHint("Use one tag or version instead of a range of versions").Final()
		}
		tags = append(tags, valid(page.Tags)...)
	}
	return tags, nil
}

// limiter bounds responses and refuses plain HTTP, except to loopback hosts that do not support HTTPS.
type limiter struct {
	next     http.RoundTripper
	insecure bool

	mu     sync.Mutex
	failed map[string]error // the last error of HTTPS by loopback host and port
}

// RoundTrip implements [http.RoundTripper].
func (g *limiter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !g.insecure {
		if err := g.checkPlain(req.URL); err != nil {
			return nil, err
		}
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		if req.URL.Scheme == "https" && isLoopback(req.URL.Hostname()) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.failed == nil || len(g.failed) >= maxLoopbackPorts {
				g.failed = map[string]error{}
			}
			g.failed[req.URL.Host] = err
		}
		return nil, err
	}
	values := maxValues
	switch {
	case isBlob(resp, req):
		resp.Body = &bounded{ReadCloser: resp.Body, bytes: maxBlob, limit: maxBlob}
		return resp, nil
	case strings.HasSuffix(egress.FirstRequest(req).URL.Path, "/tags/list"):
		values += maxTags
	}
	resp.Body = &counted{bounded{ReadCloser: resp.Body, bytes: maxResponse, limit: maxResponse}, values}
	return resp, nil
}

// blobKey is the key of contexts of requests for a blob. The value is its path.
type blobKey struct{}

// forBlob returns the context of a request for a blob of the repository, whose response may be large.
func (r *Repository) forBlob(ctx context.Context, digest v1.Hash) context.Context {
	return context.WithValue(ctx, blobKey{}, "/v2/"+r.name.RepositoryStr()+"/blobs/"+digest.String())
}

// isBlob reports whether a response is the blob that was requested, perhaps by way of redirects. The path alone does
// not suffice, as it depends on the name of the repository and on links of the registry. The context alone does not,
// as the login has it as well.
func isBlob(resp *http.Response, req *http.Request) bool {
	first := egress.FirstRequest(req)
	return resp.StatusCode == http.StatusOK && first.Method == http.MethodGet &&
		first.URL.Path == req.Context().Value(blobKey{}) && first.URL.RawQuery == ""
}

// checkPlain returns an error unless a request over plain HTTP is allowed: to a loopback host that answered a request
// over HTTPS with plain HTTP. Whether the host may be reached at all is up to the transport.
func (g *limiter) checkPlain(u *url.URL) error {
	if isLoopback(u.Hostname()) {
		g.mu.Lock()
		err := g.failed[u.Host]
		g.mu.Unlock()
		var notTLS tls.RecordHeaderError
		switch {
		case errors.As(err, &notTLS) && string(notTLS.RecordHeader[:]) == "HTTP/":
			return nil
		case err != nil:
			return err
		}
	}
	return fault.New(insecureReason, "'%s' uses plain HTTP, which is not encrypted", u.Host).
		WithHint(plainHint).Final()
}

// isLoopback reports whether a host is this one by its name, as OCI clients know it.
func isLoopback(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// bounded is a body that fails after a number of bytes.
type bounded struct {
	io.ReadCloser
	bytes, limit int64 // those that are left, and all
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.bytes -= int64(n); b.bytes < 0 {
		return 0, b.end(fmt.Errorf("the response of the registry is too long: it exceeds %d bytes", b.limit))
	}
	return n, err
}

// end closes the body, which not every caller does after an error.
func (b *bounded) end(err error) error { return errors.Join(err, b.Close()) }

// counted is a body that also fails after a number of JSON values. Each but the first follows one of three characters,
// which may also be in a text.
type counted struct {
	bounded
	values int // that are left
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.bounded.Read(p)
	for _, b := range p[:n] {
		if b == ',' || b == '[' || b == '{' {
			c.values--
		}
	}
	if c.values < 0 {
		return 0, c.end(errors.New("the response of the registry has too many values"))
	}
	return n, err
}
