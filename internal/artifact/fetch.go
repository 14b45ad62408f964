package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const downloadTimeout = 5 * time.Minute

// Fetcher returns the tree of any artifact. It reads the artifact from the store of this process if possible, else it
// downloads it over HTTP. It is safe for concurrent use. Concurrent requests for the same artifact share one download
// and one tree.
type Fetcher struct {
	Store  *Store       // may be nil
	Client *http.Client // for artifacts of sources, from artifact servers
	// External is the client for ExternalArtifacts, whose URLs are written by users. It must reject addresses that are
	// not meant for users. Client is used when nil.
	External *http.Client

	// WithoutLinks leaves symlinks out of trees, as Flux does.
	WithoutLinks bool

	// Clock measures for how long an artifact is missing; nil is the real one.
	Clock clock.PassiveClock

	fetching guard.Flight[*Tree]
	unpacked recent
	absent   absence
}

func (f *Fetcher) now() time.Time {
	if f.Clock == nil {
		return time.Now()
	}
	return f.Clock.Now()
}

// Fetch returns the tree of an artifact of the object that the key identifies. A tree in memory or in the store is
// returned only if it belongs to this object. A download is used only if it has the digest of the artifact.
func (f *Fetcher) Fetch(ctx context.Context, key Key, a meta.Artifact) (*Tree, error) {
	if tree := f.Known(key, a.Digest); tree != nil {
		return tree, nil
	}
	// A canceled request must not fail the others that wait for the same download. So the context ends only the wait;
	// the download has its own timeout.
	id := key.dir() + " " + a.Digest + " " + a.URL
	tree, err := f.fetching.DoContext(ctx, "fetching an artifact", id, func() (*Tree, error) {
		return f.fetch(context.WithoutCancel(ctx), key, a)
	})
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		failed := fault.New(meta.ArtifactFailedReason, "cannot get the artifact of revision %s", a.Revision).
			Because(err).WithHint("It is retried. If the artifact is lost or damaged, the source stores it again")
		if isAbsent(err) && !key.isExternal() && f.absent.isRecent(id, f.now()) {
			return nil, failed.Passing(absentRetry)
		}
		return nil, failed
	}
	f.absent.found(id)
	return tree, nil
}

// Known returns the tree of the key's artifact with the digest if it is in memory, or nil.
func (f *Fetcher) Known(key Key, digest string) *Tree {
	if f.Store != nil {
		return f.Store.known(key, digest)
	}
	return f.unpacked.get(key, digest)
}

func (f *Fetcher) fetch(ctx context.Context, key Key, a meta.Artifact) (*Tree, error) {
	if tree := f.Known(key, a.Digest); tree != nil {
		return tree, nil // another request has fetched it in the meantime
	}
	var local error
	if f.Store != nil {
		tree, err := f.Store.Tree(key, a)
		if err == nil {
			return f.filtered(tree), nil
		}
		local = err
	}
	tree, err := f.download(ctx, key, a)
	if err != nil {
		if key.isExternal() {
			return nil, err // the store contains it only if an ArtifactGenerator made it
		}
		return nil, errors.Join(local, err)
	}
	tree = f.filtered(tree)
	f.recent().keep(key, a.Digest, tree)
	return tree, nil
}

// filtered leaves the symlinks out of a tree that others archived, if the store leaves them out.
func (f *Fetcher) filtered(tree *Tree) *Tree {
	if f.WithoutLinks {
		return tree.WithoutLinks()
	}
	return tree
}

// recent returns the cache of unpacked trees. It belongs to the store if there is one.
func (f *Fetcher) recent() *recent {
	if f.Store != nil {
		return &f.Store.unpacked
	}
	return &f.unpacked
}

func (f *Fetcher) download(ctx context.Context, key Key, a meta.Artifact) (*Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL", fault.RedactURL(a.URL))
	}
	if !key.isExternal() {
		return download(f.Client, req, a)
	}
	tree, err := download(f.external(key), req, a)
	return tree, explainExternal(req.URL, err)
}

// download downloads an artifact.
func download(c *http.Client, req *http.Request, a meta.Artifact) (*Tree, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, &absentError{fmt.Errorf("%s: %w", fault.RedactURL(a.URL), fault.WithoutURL(err))}
	}
	defer resp.Body.Close() // its error does not matter: the content is verified, or not used
	if resp.StatusCode != http.StatusOK {
		return nil, &absentError{fmt.Errorf("%s answered with status %d", fault.RedactURL(a.URL), resp.StatusCode)}
	}
	tree, err := readVerified(req.Context(), resp.Body, a.Digest, maxDownload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), err)
	}
	return tree, nil
}

// DropTrees empties the cache of unpacked trees. Trees that are in use stay valid.
func (f *Fetcher) DropTrees() { f.recent().clear() }
