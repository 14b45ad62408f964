package provider

import (
	"context"
	"net/url"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// newGitHost returns a client for the repository at the address of a Provider.
func newGitHost(kind githost.Kind, o Options) (*githost.Client, error) {
	repository, err := githost.Parse(kind, o.Address)
	if err != nil {
		return nil, fromGitHost(err)
	}
	c, err := githost.New(githost.Options{
		Repository: repository, Secret: o.Secret, Username: o.Username,
		Identity: devOpsIdentity(repository, o.Identity), Transport: o.Transport, Clock: o.Clock,
	})
	return c, fromGitHost(err)
}

// devOpsIdentity returns the login to Azure DevOps with workload identity; nil without one.
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

// fromGitHost sets the reasons of this package on the fault of a request to a git host.
func fromGitHost(err error) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	switch f.Reason {
	case meta.URLInvalidReason:
		f.Reason = ValidationFailed
	case meta.FailedReason:
		f.Reason = SendFailed
	}
	return err
}

// githubDispatch starts GitHub workflows.
type githubDispatch struct{ host *githost.Client }

func newGitHubDispatch(o Options) (Provider, error) {
	host, err := newGitHost(githost.GitHub, o)
	return &githubDispatch{host}, err
}

// Send implements [Provider]. The event type is KIND/NAME.NAMESPACE, as documented.
func (d *githubDispatch) Send(ctx context.Context, e event.Event) error {
	o := e.InvolvedObject
	return fromGitHost(d.host.Dispatch(ctx, o.Kind+"/"+o.Name+"."+o.Namespace, e))
}
