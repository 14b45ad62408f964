package artifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Open opens the file of an artifact of the object that the key identifies: that of the store, or else a download that
// has the digest of the artifact.
func (f *Fetcher) Open(ctx context.Context, key Key, a meta.Artifact) (io.ReadCloser, error) {
	if f.Store != nil && key.check() == nil && path.Dir(a.Path) == key.dir() {
		if file, err := f.Store.Open(a); err == nil {
			return file, nil
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL", fault.RedactURL(a.URL))
	}
	c := f.Client
	if key.isExternal() {
		c = f.external(key)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), fault.WithoutURL(err))
	}
	defer resp.Body.Close() // its error does not matter: the content is verified, or not used
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered with status %d", fault.RedactURL(a.URL), resp.StatusCode)
	}
	file, err := temporary(resp.Body, a.Digest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fault.RedactURL(a.URL), err)
	}
	return file, nil
}

// temporaryFile is removed when it is closed.
type temporaryFile struct{ *os.File }

func (f temporaryFile) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }

// temporary returns a temporary file with what is read, if that has a digest.
func temporary(from io.Reader, digest string) (io.ReadCloser, error) {
	h, err := newHash(digest)
	if err != nil {
		return nil, err
	}
	created, err := os.CreateTemp("", "sluice-artifact-")
	if err != nil {
		return nil, err
	}
	file := temporaryFile{created}
	n, copyErr := io.Copy(io.MultiWriter(file, h), io.LimitReader(from, maxDownload+1))
	_, seekErr := file.Seek(0, io.SeekStart)
	algorithm, _, _ := strings.Cut(digest, ":")
	got := algorithm + ":" + hex.EncodeToString(h.Sum(nil))
	switch err = errors.Join(copyErr, seekErr); {
	case err != nil:
	case n > maxDownload:
		err = fmt.Errorf("the archive has more than %d bytes", maxDownload)
	case got != digest:
		err = fmt.Errorf("the archive has the digest %s, expected %s", got, digest)
	default:
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}
