package review

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/review/proposal"
)

// Change is a change of a repository without a pull request.
type Change struct {
	Repository string            // name; empty for the only one
	Namespace  string            // that the user may read, if not all
	Base       string            // branch that the change lands on
	Branch     string            // with the change; empty if Files has it
	Files      map[string][]byte // new contents by path; nil removes a file
}

// Preview returns what a change would do in a cluster, as the user of its clients may see it. Nothing is decrypted.
func (s *Service) Preview(ctx context.Context, c Change, cluster *preview.Cluster) (*preview.Result, error) {
	w, err := s.repositoryOf(c.Repository)
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, name := range []string{c.Base, c.Branch} {
		ref := plumbing.NewBranchReferenceName(name)
		if name == "" {
			continue
		}
		if err := ref.Validate(); err != nil {
			return nil, fmt.Errorf("%q is not the name of a branch", name)
		}
		refs = append(refs, ref.String())
	}
	base, branch := refs[0], strings.Join(refs[1:], "")
	repository, done, err := w.mirror.Fetch(ctx, refs...)
	if err != nil {
		return nil, err
	}
	defer done()
	o := preview.Options{Sources: w.config.Sources, URLs: []string{w.config.URL, w.config.repository.CloneURL()},
		Branch: c.Base, Strict: true, Keyless: true, Cluster: cluster}
	if c.Namespace != "" {
		o.Namespaces = []string{c.Namespace}
	}
	if err := o.Compare(repository, base, branch, c.Files); err != nil {
		return nil, err
	}
	o.From.Name = line(c.Base)
	return preview.Run(ctx, o)
}

// Propose opens a pull request with the login of the repository. It returns its address.
func (s *Service) Propose(ctx context.Context, repository string, p proposal.Proposal) (string, error) {
	w, err := s.repositoryOf(repository)
	if err != nil {
		return "", err
	}
	host := proposal.Host{URL: w.config.cloneURL(), Client: w.host,
		Login: func(ctx context.Context) (auth.GitCredentials, error) {
			return w.config.gitLogin(ctx, s.apps, s.Transport)
		}}
	return host.Open(ctx, s.Client, p)
}

// repositoryOf returns a repository by its name, or the only one.
func (s *Service) repositoryOf(name string) (*watched, error) {
	if name == "" && len(s.names) == 1 {
		name = s.names[0]
	}
	if !slices.Contains(s.names, name) {
		return nil, fmt.Errorf("'repository' must be one of those that are reviewed: %s", strings.Join(s.names, ", "))
	}
	return s.repositories[name], nil
}
