package auth

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/apimachinery/pkg/types"
)

// Bearer returns a token of azure or gcp for a scope. The caller must send it to hosts of the cloud only, since anyone
// who receives the token can use it. The error is a fault.
func (i *Identities) Bearer(ctx context.Context, cloud, scope string, account *types.NamespacedName) (string, error) {
	switch cloud {
	case Azure:
		credential, err := i.Azure(ctx, account)
		if err != nil {
			return "", err
		}
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		return token.Token, err
	case GCP:
		source, err := i.GCP(ctx, account, scope)
		if err != nil {
			return "", err
		}
		token, err := source.Token()
		if err != nil {
			return "", err
		}
		return token.AccessToken, nil
	}
	return "", unsupportedProvider(cloud)
}
