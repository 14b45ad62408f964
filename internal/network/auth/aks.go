package auth

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"time"

	// registers the endpoints of Azure Resource Manager for each cloud
	_ "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// aksScope contains the ID of AKS servers in Entra, which is the same in all clouds.
	aksScope   = "6dae42f8-4368-4678-94ff-3960e28e3630/.default"
	aksVersion = "2025-10-01" // of the API of managed clusters
)

var aksCluster = regexp.MustCompile(`(?i)^/subscriptions/[0-9a-f-]{36}/resourceGroups/[\w.()-]{1,90}` +
	`/providers/Microsoft\.ContainerService/managedClusters/[a-z0-9][a-z0-9_-]{0,62}$`)

func (i *Identities) aks(resource string) (managed, error) {
	if resource != "" && !aksCluster.MatchString(resource) {
		return managed{}, authFault("%q is not the resource ID of a cluster", firstLine(resource)).
			WithHint("Use the form /subscriptions/ID/resourceGroups/GROUP/providers/" +
				"Microsoft.ContainerService/managedClusters/NAME").Final()
	}
	return managed{
		describe: func(ctx context.Context, s subject) (endpoint, error) { return i.describeAKS(ctx, s, resource) },
		token: func(ctx context.Context, s subject) (string, time.Time, error) {
			t, err := i.azureToken(ctx, s, azureCloud(), []string{aksScope})
			return t.Token, t.ExpiresOn, err
		},
	}, nil
}

// azureCloud returns the cloud that the environment variable AZURE_AUTHORITY_HOST selects, as the SDK documents it.
// Resource IDs do not contain the cloud.
func azureCloud() cloud.Configuration {
	host := hostOf(os.Getenv("AZURE_AUTHORITY_HOST"))
	for _, c := range []cloud.Configuration{cloud.AzureChina, cloud.AzureGovernment} {
		if hostOf(c.ActiveDirectoryAuthorityHost) == host {
			return c
		}
	}
	return cloud.AzurePublic
}

// describeAKS lists the user credentials at Azure Resource Manager. Only the addresses and authorities
// of the resulting kubeconfig are used.
func (i *Identities) describeAKS(ctx context.Context, s subject, resource string) (endpoint, error) {
	manager := azureCloud().Services[cloud.ResourceManager]
	token, err := i.azureToken(ctx, s, azureCloud(), []string{manager.Audience + "/.default"})
	if err != nil {
		return endpoint{}, err
	}
	// the other format names a plugin that kubectl no longer includes
	query := url.Values{"api-version": {aksVersion}, "format": {"exec"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, manager.Endpoint+resource+
		"/listClusterUserCredential?"+query.Encode(), nil)
	if err != nil {
		return endpoint{}, authFault("%q is not the resource ID of a cluster", resource).Final()
	}
	req.Header.Set("Authorization", "Bearer "+token.Token)
	var response struct{ Kubeconfigs []struct{ Value []byte } }
	permission := "the role Azure Kubernetes Service Cluster User on it"
	if err := i.callCloudAPI(s, req, resource, permission, &response); err != nil {
		return endpoint{}, err
	}
	e := endpoint{ca: map[string][]byte{}}
	for _, k := range response.Kubeconfigs {
		config, err := clientcmd.Load(k.Value)
		if err != nil {
			return endpoint{}, authFault("cannot parse the kubeconfig of cluster '%s'", resource)
		}
		for _, c := range config.Clusters {
			if e.ca[c.Server] == nil {
				e.addresses, e.ca[c.Server] = append(e.addresses, c.Server), c.CertificateAuthorityData
			}
		}
	}
	return e, nil
}
