package registry

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sluice-gitops/sluice/internal/image/policy"
)

// ParseList parses a response to a request for the tags of shop/web.
func ParseList(body []byte, link string) ([]policy.Tag, string, error) {
	const at = "/v2/shop/web/tags/list"
	next, err := nextPage(&url.URL{Scheme: "https", Host: "registry.example.com", Path: at}, at+"?n=1000",
		http.Header{"Link": {link}})
	if err != nil {
		return nil, "", err
	}
	tags, err := parseTags(context.Background(), body)
	return tags, next, err
}
