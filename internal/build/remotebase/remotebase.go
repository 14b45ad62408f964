// Package remotebase fetches manifests that a kustomization refers to by https:// URL.
package remotebase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxSize is the maximum size of a manifest, in bytes.
const maxSize = 10 << 20

// NewFetcher returns a function that fetches the manifest at a URL through a transport. Its errors do not contain the
// URL, which may hold credentials.
func NewFetcher(transport http.RoundTripper) func(ctx context.Context, url string) ([]byte, error) {
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, url string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, errors.New("invalid URL")
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, errors.Unwrap(err) // without the URL
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the server responded with %s", resp.Status)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
		if len(b) > maxSize {
			return nil, fmt.Errorf("the manifest is larger than %d MiB", maxSize>>20)
		}
		return b, err
	}
}
