// Package registry reads image repositories: their tags, and the digests, labels and platforms of images.
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
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Repository is an image repository. It caches its login. It is safe for concurrent use.
type Repository struct {
	*oci.Repository
	name   name.Repository
	access oci.Access

	mu     sync.Mutex
	client *http.Client // with login; nil before the first request

	scanning sync.Mutex
	partial  store.Repository // pages of an interrupted scan, to resume it
}

// ParseName parses the name of an image repository as in containers: a short name is one of
// docker.io/library. The name must not have a scheme, a tag or a digest. The error is a terminal fault.
func ParseName(image string, insecure bool) (name.Repository, error) {
	bad := func(what string) (name.Repository, error) {
		return name.Repository{}, fault.New(imagev1.ImageURLInvalidReason, "spec.image '%.300s' %s", image, what).
			WithHint("Write it as ghcr.io/org/app, without scheme, tag and digest").Final()
	}
	if strings.Contains(image, "://") {
		return bad("has a scheme")
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
		return bad("is not the name of an image repository")
	}
	return repo, nil
}

// URL returns the URL of a repository for [oci.ParseURL].
func URL(repo name.Repository) string { return oci.Scheme + repo.Name() }

// Open returns a repository. It sends no request.
func Open(repo name.Repository, access oci.Access) (*Repository, error) {
	opened, err := oci.Open(URL(repo), access)
	if err != nil {
		return nil, err
	}
	return &Repository{Repository: opened, name: repo, access: access}, nil
}

// login returns a client with a login.
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

// failed returns a fault for an error of the registry.
func (r *Repository) failed(err error, format string, args ...any) error {
	return oci.ExplainLogin(imagev1.ReadOperationFailedReason, r.access.Login, err, format, args...)
}

// CompileExclusions compiles the regular expressions of excluded tags. The error is a terminal fault that
// names the invalid expression.
func CompileExclusions(list []string) ([]*regexp.Regexp, error) {
	var compiled []*regexp.Regexp
	for _, expression := range list {
		re, err := regex.Compile(expression)
		if err != nil {
			return nil, fault.New(imagev1.InvalidExclusionReason,
				"'%.100s' in spec.exclusionList is not a regular expression", expression).Because(err).Final()
		}
		compiled = append(compiled, re)
	}
	return compiled, nil
}

// Name returns the name with registry and path, such as index.docker.io/library/alpine.
func (r *Repository) Name() string { return r.name.Name() }
