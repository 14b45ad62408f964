package source

import (
	"context"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// remote says where the repository is and how to get in.
func (g *GitRepository) remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error) {
	remote := git.Remote{URL: obj.Spec.URL}
	data, err := g.Secrets.Data(ctx, obj.Namespace, obj.Spec.SecretRef, "spec.secretRef")
	if err != nil {
		return remote, err
	}
	if obj.Spec.Provider != "" && obj.Spec.Provider != sourcev1.ProviderGeneric {
		return remote, fault.New(meta.FailedReason, "spec.provider is set, which this version cannot honour").Final()
	}
	remote.Credentials, err = auth.Git(obj.Spec.URL, data)
	return remote, err
}
