package access

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// azureLogin returns the login of the Secret, or else of the workload identity. If the object names neither and the
// process has no identity, the login is empty, and the container must be public.
func (b *Buckets) azureLogin(ctx context.Context, at Bucket, transport http.RoundTripper) (bucket.AzureLogin, error) {
	if at.login != nil {
		login, err := bucket.AzureLoginFrom(at.login, at.spec.Endpoint, transport, b.Metadata)
		if err == nil && login.Ambient {
			err = at.checkManagedIdentity()
		}
		if err != nil {
			return bucket.AzureLogin{}, err
		}
		return login, nil
	}
	identity := azureIdentity{b.Identities, at.account}
	err := auth.CheckEndpoint(auth.Azure, at.spec.Endpoint, at.spec.Insecure)
	if err == nil {
		if err := at.checkAuthorities(at.cert, "spec.certSecretRef"); err != nil {
			return bucket.AzureLogin{}, err
		}
		_, err = identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{bucket.AzureScope}})
	}
	if err != nil && at.spec.ServiceAccountName == "" {
		return bucket.AzureLogin{}, nil
	}
	return bucket.AzureLogin{Token: identity}, err
}

// checkManagedIdentity returns a fault if the managed identity of the machine may not be used, or not for the endpoint.
// The machine is the controller's, so that its identity is refused where objects have another one.
func (b Bucket) checkManagedIdentity() error {
	if b.account != nil {
		return fault.New(meta.AuthenticationFailedReason, "the managed identity in the Secret cannot be used, as "+
			"--default-identity-service-account sets ServiceAccount '%s' as the identity", b.account).
			WithHint("Remove spec.secretRef, and set the annotations azure.workload.identity/client-id and " +
				"azure.workload.identity/tenant-id of the ServiceAccount; or set tenantId and clientSecret in the " +
				"Secret, too")
	}
	return b.checkIdentity(auth.Azure)
}

// azureIdentity requests tokens of a workload identity.
type azureIdentity struct {
	identities *auth.Identities
	account    *types.NamespacedName
}

// GetToken implements [azcore.TokenCredential].
func (i azureIdentity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	credential, err := i.identities.Azure(ctx, i.account)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return credential.GetToken(ctx, o)
}
