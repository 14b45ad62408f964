package oci

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// nearestTags is how many tags a hint names.
const nearestTags = 3

// failed returns the fault of a failed request with the login of the repository.
func (r *Repository) failed(err error, format string, args ...any) error {
	return ExplainLogin(sourcev1.OCIPullFailedReason, r.login, err, format, args...)
}

// failed returns the fault of a failed request after the login succeeded.
func failed(err error, format string, args ...any) error {
	return Explain(sourcev1.OCIPullFailedReason, err, format, args...)
}

// ExplainLogin is Explain for a request with a login, which may be anonymous.
func ExplainLogin(reason string, login authn.AuthConfig, err error, format string, args ...any) error {
	f := Explain(reason, err, format, args...)
	var response *transport.Error
	if login == (authn.AuthConfig{}) && errors.As(err, &response) && response.StatusCode == http.StatusUnauthorized {
		fault.As(f).Hint = "No login is set: set spec.secretRef, or spec.provider for a cloud, unless the repository " +
			"does not exist"
	}
	return f
}

func isNotFound(err error) bool {
	var response *transport.Error
	return errors.As(err, &response) && response.StatusCode == http.StatusNotFound
}

// withNearest names existing tags that are like a missing one. It reads one page of tags.
func (r *Repository) withNearest(ctx context.Context, tag string, missing error) error {
	f := fault.As(missing)
	lister, err := r.puller.Lister(ctx, r.name)
	if f == nil || err != nil || !lister.HasNext() {
		return missing
	}
	page, err := lister.Next(ctx)
	if err != nil {
		return missing
	}
	if tags := valid(page.Tags); len(tags) > 0 {
		f.Hint = "The repository has no such tag; the nearest are " + strings.Join(nearest(tag, tags), ", ")
	}
	return missing
}

// nearest returns the tags with the longest common prefix, those of similar length first.
func nearest(tag string, tags []string) []string {
	difference := func(other string) int {
		common := 0
		for common < min(len(tag), len(other)) && tag[common] == other[common] {
			common++
		}
		return max(len(tag), len(other)) - common
	}
	sorted := slices.Sorted(slices.Values(tags))
	slices.SortStableFunc(sorted, func(a, b string) int { return difference(a) - difference(b) })
	return sorted[:min(len(sorted), nearestTags)]
}

// plainHint is the hint if a server does not support TLS.
const plainHint = "Use a server with TLS, or set spec.insecure: true, or --insecure-registry on the command line"

// Explain returns a fault for a failed request to a registry, with a hint that depends on the response. The reason
// applies unless the error has a more specific one.
func Explain(reason string, err error, format string, args ...any) error {
	f := fault.New(reason, format, args...)
	var response *transport.Error
	var network *url.Error
	switch {
	case egress.IsPlainHTTP(err):
		f.Err = errors.New("the server answered plain HTTP")
		f.Hint = plainHint
	case errors.As(err, &response):
		f.Err = response
		switch response.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			f.Reason = meta.AuthenticationFailedReason
			f.Hint = "Check the login and its permissions. Some registries return this status for missing repositories"
		case http.StatusNotFound:
			f.Hint = "Check the URL and the reference"
		}
	case errors.As(err, &network):
		f.Err = network.Err // without the URL, which may contain the signature of a redirect
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
