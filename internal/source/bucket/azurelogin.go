package bucket

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-gitops/sluice/internal/limits/keysize"
)

// AzureLoginFrom reads the login in a Secret: tenantId and clientId with clientSecret or clientCertificate; clientId
// alone for a managed identity; accountKey, and optionally accountName; or sasKey. Tokens of Entra ID are requested by
// way of transport, tokens of a managed identity by way of metadata, which must reach the metadata server of the
// machine; managed identities are refused if it is nil.
func AzureLoginFrom(data map[string][]byte, endpoint string, transport, metadata http.RoundTripper) (AzureLogin,
	error) {
	has := func(keys ...string) bool {
		for _, k := range keys {
			if len(data[k]) == 0 {
				return false
			}
		}
		return true
	}
	var login AzureLogin
	var err error
	switch {
	case has("tenantId", "clientId", "clientSecret"):
		login.Token, err = azidentity.NewClientSecretCredential(string(data["tenantId"]), string(data["clientId"]),
			string(data["clientSecret"]),
			&azidentity.ClientSecretCredentialOptions{ClientOptions: entra(data, transport),
				DisableInstanceDiscovery: has("authorityHost")})
	case has("tenantId", "clientId", "clientCertificate"):
		login.Token, err = certificateLogin(data, transport)
	case has("clientId"):
		if metadata == nil {
			return login, refused("managed identities are not enabled")
		}
		login.Ambient = true
		login.Token, err = azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
			ClientOptions: entra(data, metadata), ID: azidentity.ClientID(data["clientId"]),
		})
	case has("accountKey"):
		login.SharedKey, err = container.NewSharedKeyCredential(accountName(data, endpoint), string(data["accountKey"]))
	case has("sasKey"):
		login.SAS = string(data["sasKey"])
	default:
		return login, refused("the Secret contains no login to Azure").
			WithHint("Set tenantId, clientId and clientSecret or clientCertificate; or clientId alone; or " +
				"accountKey; or sasKey")
	}
	if err != nil { // the error is not included, as it may contain parts of the login
		return AzureLogin{}, refused("the login to Azure in the Secret is not valid").
			WithHint("Check tenantId, clientCertificate and its password, or accountKey, which must be in base64 as " +
				"shown by Azure")
	}
	return login, nil
}

// certificateLogin returns the credential of a client certificate.
func certificateLogin(data map[string][]byte, transport http.RoundTripper) (azcore.TokenCredential, error) {
	if err := keysize.CheckFile(data["clientCertificate"]); err != nil {
		return nil, err
	}
	certificates, key, err := azidentity.ParseCertificates(data["clientCertificate"], data["clientCertificatePassword"])
	if err != nil {
		return nil, err
	}
	if err := keysize.Check(key); err != nil {
		return nil, err
	}
	chain := string(data["clientCertificateSendChain"])
	return azidentity.NewClientCertificateCredential(string(data["tenantId"]), string(data["clientId"]),
		certificates, key,
		&azidentity.ClientCertificateCredentialOptions{
			ClientOptions: entra(data, transport), SendCertificateChain: chain == "1" || chain == "true",
			DisableInstanceDiscovery: len(data["authorityHost"]) > 0,
		})
}

// entra returns the options for requests to Entra ID, at authorityHost or else in the public cloud.
func entra(data map[string][]byte, transport http.RoundTripper) policy.ClientOptions {
	o := policy.ClientOptions{
		Transport: &http.Client{Transport: &limiter{transport}},
		Retry:     policy.RetryOptions{MaxRetries: attempts - 1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}
	if host := string(data["authorityHost"]); host != "" {
		o.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: host}
	}
	return o
}

// accountName returns the name of the storage account: from the Secret, or else the first part of the path or of the
// host.
func accountName(data map[string][]byte, endpoint string) string {
	if name := string(data["accountName"]); name != "" {
		return name
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	if first, _, _ := strings.Cut(strings.Trim(u.Path, "/"), "/"); first != "" {
		return first
	}
	name, _, _ := strings.Cut(u.Hostname(), ".")
	return name
}
