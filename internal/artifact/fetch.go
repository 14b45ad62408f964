package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// A fetcher keeps the trees that it unpacked last: consumers of a source ask for the same one, again at every interval.
const (
	keptTrees = 64
	keptBytes = 256 << 20 // of their contents together

	downloadTimeout = 5 * time.Minute
)

// Fetcher gives the tree of any artifact: from the store of this process if it is there, else over HTTP.
// It is safe for concurrent use, and consumers that ask for the same artifact share the work and the tree.
type Fetcher struct {
	Store  *Store // may be nil
	Client *http.Client

	fetching singleflight.Group
	mu       sync.Mutex
	kept     []keptTree // the one asked for last comes last
}

type keptTree struct {
	digest string
	tree   *Tree
	size   int64
}

// Fetch returns the artifact's tree. What comes over HTTP is used only if its digest is the artifact's.
func (f *Fetcher) Fetch(ctx context.Context, a meta.Artifact) (*Tree, error) {
	if f.Store != nil {
		if tree := f.Store.registered(a.Digest); tree != nil {
			return tree, nil
		}
	}
	if tree := f.recall(a.Digest); tree != nil {
		return tree, nil
	}
	// One that gives up must not take the others with it: the work ends with its own bounds, the wait with the context.
	work := f.fetching.DoChan(a.Digest+" "+a.URL, func() (any, error) { return f.fetch(context.WithoutCancel(ctx), a) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case done := <-work:
		if done.Err != nil {
			return nil, fault.New(meta.ArtifactFailedReason, "cannot get the artifact of revision %s", a.Revision).
				Because(done.Err).WithHint("It is tried again; the source stores it anew when it is lost or damaged")
		}
		return done.Val.(*Tree), nil
	}
}

func (f *Fetcher) fetch(ctx context.Context, a meta.Artifact) (*Tree, error) {
	if tree := f.recall(a.Digest); tree != nil {
		return tree, nil // another was done with it just now
	}
	var local error
	if f.Store != nil {
		tree, err := f.Store.Tree(a)
		if err == nil {
			f.keep(a.Digest, tree)
			return tree, nil
		}
		local = err
	}
	tree, err := f.download(ctx, a)
	if err != nil {
		return nil, errors.Join(local, err)
	}
	f.keep(a.Digest, tree)
	return tree, nil
}

func (f *Fetcher) download(ctx context.Context, a meta.Artifact) (*Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is no URL", fault.RedactURL(a.URL))
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), withoutURL(err))
	}
	defer resp.Body.Close() // read to its end, or given up
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with status %d", fault.RedactURL(a.URL), resp.StatusCode)
	}
	tree, err := readVerified(resp.Body, a.Digest, maxDownload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), err)
	}
	return tree, nil
}

// withoutURL takes the URL out of an HTTP client's error: it may hold a secret.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (f *Fetcher) recall(digest string) *Tree {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.kept, func(k keptTree) bool { return k.digest == digest })
	if i < 0 {
		return nil
	}
	k := f.kept[i]
	f.kept = append(slices.Delete(f.kept, i, i+1), k)
	return k.tree
}

// keep keeps a tree, and lets go of those that were not asked for longest.
func (f *Fetcher) keep(digest string, tree *Tree) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(slices.DeleteFunc(f.kept, func(k keptTree) bool { return k.digest == digest }), keptTree{digest, tree, tree.Size()})
	var sum int64
	first := len(f.kept)
	for first > 0 && len(f.kept)-first < keptTrees && sum+f.kept[first-1].size <= keptBytes {
		first--
		sum += f.kept[first].size
	}
	f.kept = slices.Delete(f.kept, 0, first)
}
