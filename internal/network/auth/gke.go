package auth

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"time"
)

const gkeAPI = "https://container.googleapis.com/v1/"

var gkeCluster = regexp.MustCompile(`^projects/[a-z0-9:.-]{1,100}/locations/[a-z0-9-]{1,40}/clusters/[a-z0-9-]{1,40}$`)

func (i *Identities) gke(resource string) (managed, error) {
	if resource != "" && !gkeCluster.MatchString(resource) {
		return managed{}, authFault("%q is not the name of a cluster", firstLine(resource)).
			WithHint("Use the form projects/PROJECT/locations/LOCATION/clusters/NAME").Final()
	}
	return managed{
		describe: func(ctx context.Context, s subject) (endpoint, error) { return i.describeGKE(ctx, s, resource) },
		token: func(ctx context.Context, s subject) (string, time.Time, error) {
			t, err := i.gcpToken(ctx, s, nil)
			if err != nil {
				return "", time.Time{}, err
			}
			return t.AccessToken, t.Expiry, nil
		},
	}, nil
}

// describeGKE calls projects.locations.clusters.get of the Kubernetes Engine API.
func (i *Identities) describeGKE(ctx context.Context, s subject, resource string) (endpoint, error) {
	token, err := i.gcpToken(ctx, s, nil)
	if err != nil {
		return endpoint{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, gkeAPI+resource, nil)
	if err != nil {
		return endpoint{}, authFault("%q is not the name of a cluster", resource).Final()
	}
	token.SetAuthHeader(req)
	var response struct {
		Endpoint                    string
		MasterAuth                  struct{ ClusterCaCertificate string }
		ControlPlaneEndpointsConfig struct {
			DNSEndpointConfig struct{ Endpoint string } `json:"dnsEndpointConfig"`
			IPEndpointsConfig struct {
				Enabled                         *bool
				PublicEndpoint, PrivateEndpoint string
			} `json:"ipEndpointsConfig"`
		}
	}
	if err := i.callCloudAPI(s, req, resource, "the permission container.clusters.get", &response); err != nil {
		return endpoint{}, err
	}
	e, ca := endpoint{ca: map[string][]byte{}}, decodeCA(response.MasterAuth.ClusterCaCertificate)
	c := response.ControlPlaneEndpointsConfig
	if c.IPEndpointsConfig.Enabled == nil || *c.IPEndpointsConfig.Enabled {
		for _, ip := range []string{response.Endpoint, c.IPEndpointsConfig.PublicEndpoint,
			c.IPEndpointsConfig.PrivateEndpoint} {
			if ip != "" && !slices.Contains(e.addresses, ip) {
				e.addresses, e.ca[ip] = append(e.addresses, ip), ca
			}
		}
	}
	if dns := c.DNSEndpointConfig.Endpoint; dns != "" {
		e.addresses = append(e.addresses, dns) // its certificate is signed by a public authority
	}
	return e, nil
}
