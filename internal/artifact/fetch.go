package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/guard"
)

const downloadTimeout = 5 * time.Minute

// Fetcher returns the tree of any artifact. It reads the artifact from the store of this process if possible, else it
// downloads it over HTTP. It is safe for concurrent use. Concurrent requests for the same artifact share one download
// and one tree.
type Fetcher struct {
	Store  *Store // may be nil
	Client *http.Client

	fetching guard.Flight[*Tree]
	unpacked recent
}

// Fetch returns the tree of the artifact. A download is used only if its digest is that of the artifact.
func (f *Fetcher) Fetch(ctx context.Context, a meta.Artifact) (*Tree, error) {
	if f.Store != nil {
		if tree := f.Store.registered(a.Digest); tree != nil {
			return tree, nil
		}
	}
	if tree := f.recent().get(a.Digest); tree != nil {
		return tree, nil
	}
	// A canceled request must not fail the others that wait for the same download. So the context ends only the wait;
	// the download has its own timeout.
	tree, err := f.fetching.DoContext(ctx, "fetching an artifact", a.Digest+" "+a.URL, func() (*Tree, error) {
		return f.fetch(context.WithoutCancel(ctx), a)
	})
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fault.New(meta.ArtifactFailedReason, "cannot get the artifact of revision %s", a.Revision).
			Because(err).WithHint("It is retried. If the artifact is lost or damaged, the source stores it again")
	}
	return tree, nil
}

func (f *Fetcher) fetch(ctx context.Context, a meta.Artifact) (*Tree, error) {
	if tree := f.recent().get(a.Digest); tree != nil {
		return tree, nil // another request has fetched it in the meantime
	}
	var local error
	if f.Store != nil {
		tree, err := f.Store.Tree(a)
		if err == nil {
			return tree, nil
		}
		local = err
	}
	tree, err := f.download(ctx, a)
	if err != nil {
		return nil, errors.Join(local, err)
	}
	f.recent().keep(a.Digest, tree)
	return tree, nil
}

func (f *Fetcher) download(ctx context.Context, a meta.Artifact) (*Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL", fault.RedactURL(a.URL))
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), withoutURL(err))
	}
	defer resp.Body.Close() // its error does not matter: the content is verified, or not used
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with status %d", fault.RedactURL(a.URL), resp.StatusCode)
	}
	tree, err := readVerified(resp.Body, a.Digest, maxDownload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), err)
	}
	return tree, nil
}

// withoutURL removes the URL from an error of an HTTP client, because the URL may contain a secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// recent returns the cache of unpacked trees: that of the store, if there is one.
func (f *Fetcher) recent() *recent {
	if f.Store != nil {
		return &f.Store.unpacked
	}
	return &f.unpacked
}
