package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxDownload bounds the bytes of an artifact that is fetched.
const maxDownload = 512 << 20

// Fetcher gives the tree of any artifact: from the store of this process if it is there, else over HTTP.
type Fetcher struct {
	Store  *Store // may be nil
	Client *http.Client
}

// Fetch returns the artifact's tree. What comes over HTTP is used only if its digest is the artifact's.
func (f *Fetcher) Fetch(ctx context.Context, a meta.Artifact) (*Tree, error) {
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
		return nil, fault.New(meta.ArtifactFailedReason, "cannot get the artifact of revision %s", a.Revision).
			Because(errors.Join(local, err)).WithHint("It is fetched again when the source has stored it anew")
	}
	return tree, nil
}

func (f *Fetcher) download(ctx context.Context, a meta.Artifact) (*Tree, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // read to its end, or given up
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with status %d", fault.RedactURL(a.URL), resp.StatusCode)
	}
	h := sha256.New()
	body := io.TeeReader(io.LimitReader(resp.Body, maxDownload), h)
	tree, err := ReadArchive(body)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return nil, err
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != a.Digest {
		return nil, fmt.Errorf("%s has the digest %s, not %s", fault.RedactURL(a.URL), got, a.Digest)
	}
	return tree, nil
}
