// Package registry reads repositories of images: which tags there are, and what they point to. It knows no controller.
package registry

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// Repository is a repository of images. It stays logged in, so that a kept one asks for nothing but what is
// wanted. It is safe for concurrent use.
type Repository struct {
	*oci.Repository
	name   name.Repository
	access oci.Access

	mu     sync.Mutex
	client *http.Client // logged in; nil before the first request

	scanning sync.Mutex
	begun    store.Repository // pages of a scan that was cut off, to go on from
}

// ParseName reads the name of a repository of images as containers have it: docker.io/library stands before a
// short one. It must have neither a scheme nor a tag or digest.
func ParseName(image string, insecure bool) (name.Repository, error) {
	bad := func(what string) (name.Repository, error) {
		return name.Repository{}, fault.New(imagev1.ImageURLInvalidReason, "spec.image '%.300s' %s", image, what).
			WithHint("Write it as ghcr.io/org/app: without a scheme, a tag or a digest").Final()
	}
	if strings.Contains(image, "://") {
		return bad("starts with a scheme")
	}
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(image, options...)
	if err != nil {
		if _, err := name.ParseReference(image); err == nil {
			return bad("has a tag or a digest")
		}
		return bad("names no repository of images")
	}
	return repo, nil
}

// URL is that of a repository as [oci.ParseURL] reads it.
func URL(repo name.Repository) string { return oci.Scheme + repo.Name() }

// Open returns a repository. It sends nothing.
func Open(repo name.Repository, access oci.Access) (*Repository, error) {
	opened, err := oci.Open(URL(repo), access)
	if err != nil {
		return nil, err
	}
	return &Repository{Repository: opened, name: repo, access: access}, nil
}

// login returns a client that is logged in.
func (r *Repository) login(ctx context.Context) (*http.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	in, err := transport.NewWithContext(ctx, r.name.Registry, authn.FromConfig(r.access.Login), r.access.Limited(),
		[]string{r.name.Scope(transport.PullScope)})
	if err != nil {
		return nil, r.failed(err, "cannot log in to '%s'", r.name.RegistryStr())
	}
	r.client = &http.Client{Transport: in}
	return r.client, nil
}

// failed explains an error of the registry.
func (r *Repository) failed(err error, format string, args ...any) error {
	return oci.Explain(imagev1.ReadOperationFailedReason, err, format, args...)
}

// CompileExclusions compiles the regular expressions of tags that are left out. The error is a terminal fault
// that names the expression.
func CompileExclusions(list []string) ([]*regexp.Regexp, error) {
	var compiled []*regexp.Regexp
	for _, expression := range list {
		if len(expression) > maxExpression {
			return nil, fault.New(imagev1.InvalidExclusionReason,
				"an expression of spec.exclusionList is longer than %d bytes", maxExpression).Final()
		}
		re, err := regexp.Compile(expression)
		if err != nil {
			return nil, fault.New(imagev1.InvalidExclusionReason,
				"'%.100s' of spec.exclusionList is no regular expression", expression).Because(err).Final()
		}
		compiled = append(compiled, re)
	}
	return compiled, nil
}

// Name returns the name with registry and path, such as index.docker.io/library/alpine.
func (r *Repository) Name() string { return r.name.Name() }
