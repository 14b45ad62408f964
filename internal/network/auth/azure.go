package auth

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	clientAnnotation = "azure.workload.identity/client-id"
	tenantAnnotation = "azure.workload.identity/tenant-id"
	azureAudience    = "api://AzureADTokenExchange"

	acrScope    = "https://containerregistry.azure.net/.default"
	devOpsScope = "499b84ac-1321-427f-aa17-267ca6975798/.default" // the ID of Azure DevOps in Entra
	acrUser     = "00000000-0000-0000-0000-000000000000"          // the user name for a refresh token
	acrTTL      = 3 * time.Hour                                   // of a refresh token
)

var (
	acrHost    = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)?(\.data)?\.azurecr\.(io|cn|us)$`)
	devOpsHost = regexp.MustCompile(`^(dev\.azure\.com|[a-z0-9-]+\.visualstudio\.com)$`)
)

// azureCredential returns cached tokens of an account.
type azureCredential struct {
	identities *Identities
	account    *types.NamespacedName
	cloud      cloud.Configuration
}

// GetToken implements [azcore.TokenCredential].
func (c azureCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	s, err := c.identities.subject(ctx, c.account)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return c.identities.azureToken(ctx, s, c.cloud, o.Scopes)
}

// Azure returns a credential, such as for Blob Storage and Key Vault. The caller must send its tokens to hosts of Azure
// only, since anyone who receives a token can use it. The error is a fault.
func (i *Identities) Azure(ctx context.Context, account *types.NamespacedName) (azcore.TokenCredential, error) {
	if _, err := i.subject(ctx, account); err != nil {
		return nil, err
	}
	return azureCredential{identities: i, account: account, cloud: cloud.Configuration{}}, nil
}

func (i *Identities) azureToken(ctx context.Context, s subject, c cloud.Configuration,
	scopes []string) (azcore.AccessToken, error) {
	key := keyOf(append(s.key(clientAnnotation, tenantAnnotation), c.ActiveDirectoryAuthorityHost,
		strings.Join(scopes, " "))...)
	return i.azure.get(ctx, i.cacheOptions(), key, func() (azcore.AccessToken, time.Time, error) {
		credential, err := i.azureCredential(s, c)
		if err != nil {
			return azcore.AccessToken{}, time.Time{}, err
		}
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: scopes})
		if err != nil {
			return token, time.Time{}, exchangeFault(err, s, "Azure issued no token")
		}
		return token, token.ExpiresOn, nil
	})
}

// azureCredential returns a credential of the SDK. It exchanges the token of the service account, or is the credential
// of the process.
func (i *Identities) azureCredential(s subject, c cloud.Configuration) (azcore.TokenCredential, error) {
	options := azcore.ClientOptions{Transport: i.client(), Cloud: c}
	if s.isProcess() {
		return ambientAzure(c)
	}
	client, tenant := s.annotations[clientAnnotation], s.annotations[tenantAnnotation]
	if client == "" || tenant == "" {
		return nil, authFault("service account '%s' needs the annotations %s and %s", s.account, clientAnnotation,
			tenantAnnotation).
			WithHint("Set them to the client ID and the tenant ID of the managed identity")
	}
	assertion := func(ctx context.Context) (string, error) { return i.token(ctx, s, azureAudience) }
	credential, err := azidentity.NewClientAssertionCredential(tenant, client, assertion,
		&azidentity.ClientAssertionCredentialOptions{ClientOptions: options})
	if err != nil {
		return nil, exchangeFault(err, s, "cannot use the Azure identity of service account '%s'", s.account)
	}
	return credential, nil
}

// ambientAzure returns the credential of the process: a secret in the environment, workload identity, or the managed
// identity of the instance. It omits those parts of the SDK's default chain that run programs.
func ambientAzure(c cloud.Configuration) (azcore.TokenCredential, error) {
	options := azcore.ClientOptions{Cloud: c}
	if credential, err := azidentity.NewEnvironmentCredential(
		&azidentity.EnvironmentCredentialOptions{ClientOptions: options}); err == nil {
		return credential, nil
	}
	if credential, err := azidentity.NewWorkloadIdentityCredential(
		&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options}); err == nil {
		return credential, nil
	}
	credential, err := azidentity.NewManagedIdentityCredential(
		&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options})
	if err != nil {
		return nil, exchangeFault(err, subject{}, "the controller has no Azure identity")
	}
	return credential, nil
}

// acr returns the login to a registry: a refresh token, which it gets for a token of Entra.
func (i *Identities) acr(ctx context.Context, host string, s subject) (authn.AuthConfig, error) {
	match := acrHost.FindStringSubmatch(host)
	if match == nil {
		return authn.AuthConfig{}, foreignHost(Azure, host, "NAME.azurecr.io")
	}
	azure := map[string]cloud.Configuration{"cn": cloud.AzureChina, "us": cloud.AzureGovernment}[match[3]]
	key := keyOf(append(s.key(clientAnnotation, tenantAnnotation), Azure, host)...)
	return i.registries.get(ctx, i.cacheOptions(), key, func() (authn.AuthConfig, time.Time, error) {
		token, err := i.azureToken(ctx, s, azure, []string{acrScope})
		if err != nil {
			return authn.AuthConfig{}, time.Time{}, err
		}
		refresh, err := i.exchangeACR(ctx, host, token.Token)
		if err != nil {
			return authn.AuthConfig{}, time.Time{}, err
		}
		return authn.AuthConfig{Username: acrUser, Password: refresh}, now(i.Clock).Add(acrTTL), nil
	})
}

// exchangeACR calls POST /oauth2/exchange of the registry.
func (i *Identities) exchangeACR(ctx context.Context, host, token string) (string, error) {
	form := url.Values{"grant_type": {"access_token"}, "service": {host}, "access_token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/oauth2/exchange",
		strings.NewReader(form.Encode()))
	if err != nil {
		return "", authFault("'%s' is not the host of a registry", host)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := i.client().Do(req)
	if err != nil {
		return "", authFault("cannot log in to host '%s'", host).Because(fault.WithoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		RefreshToken string `json:"refresh_token"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", authFault("cannot log in to host '%s'", host).Because(err)
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.RefreshToken == "" {
		f := authFault("host '%s' refused the login (HTTP %d)", host, resp.StatusCode)
		if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
			return "", f.WithHint("Check that the identity has the role AcrPull on the registry")
		}
		return "", f
	}
	return answer.RefreshToken, nil
}

func (i *Identities) azureDevOps(ctx context.Context, u *url.URL, s subject) (GitCredentials, error) {
	scope, err := AzureDevOpsScope(u)
	if err != nil {
		return GitCredentials{}, err
	}
	token, err := i.azureToken(ctx, s, cloud.Configuration{}, []string{scope})
	return GitCredentials{BearerToken: token.Token}, err
}

// AzureDevOpsScope returns the scope of tokens for Azure DevOps. It returns a fault if the URL is not one of Azure
// DevOps.
func AzureDevOpsScope(u *url.URL) (string, error) {
	if host := strings.ToLower(u.Hostname()); u.Scheme != "https" || !devOpsHost.MatchString(host) {
		return "", foreignHost(Azure, host, "dev.azure.com")
	}
	return devOpsScope, nil
}
