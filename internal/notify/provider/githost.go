package provider

import (
	"context"
	"net/url"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// newGitHost returns the client of the repository that the address of a Provider names.
func newGitHost(kind githost.Kind, o Options) (*githost.Client, error) {
	repository, err := githost.Parse(kind, o.Address)
	if err != nil {
		return nil, ofGitHost(err)
	}
	c, err := githost.New(githost.Options{Repository: repository, Secret: o.Secret, Username: o.Username,
		Identity:  devOpsIdentity(repository, o.Identity),
		Transport: o.Transport, Clock: o.Clock})
	return c, ofGitHost(err)
}

// devOpsIdentity logs in to Azure DevOps by workload identity.
func devOpsIdentity(repository githost.Repository, identity Identity) githost.Login {
	if identity == nil {
		return nil
	}
	return func(ctx context.Context) (auth.GitCredentials, error) {
		scope, err := auth.AzureDevOpsScope(&url.URL{Scheme: repository.Base.Scheme, Host: repository.Base.Host})
		if err != nil {
			return auth.GitCredentials{}, err
		}
		token, err := identity.Token(ctx, auth.Azure, scope)
		return auth.GitCredentials{BearerToken: token}, err
	}
}

// ofGitHost gives faults of git hosts the reasons of this package.
func ofGitHost(err error) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	own := *f
	switch f.Reason {
	case meta.URLInvalidReason:
		own.Reason = ValidationFailed
	case meta.FailedReason:
		own.Reason = SendFailed
	}
	return &own
}

// dispatch starts workflows of GitHub.
type dispatch struct{ host *githost.Client }

func newGitHubDispatch(o Options) (Provider, error) {
	host, err := newGitHost(githost.GitHub, o)
	return &dispatch{host}, err
}

// Send implements [Provider]. Workflows wait for the type KIND/NAME.NAMESPACE, as documented.
func (d *dispatch) Send(ctx context.Context, e event.Event) error {
	of := e.InvolvedObject
	return ofGitHost(d.host.Dispatch(ctx, of.Kind+"/"+of.Name+"."+of.Namespace, e))
}
