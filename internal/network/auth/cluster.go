package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// ClusterRequest describes a cluster that a cloud manages: EKS of aws, AKS of azure, GKE of gcp.
type ClusterRequest struct {
	Provider string
	// Cluster is the full name in the cloud's API. It may be empty for azure and gcp if Address and CA are set.
	Cluster string
	// Address of the API server. It must be an address that the cloud reports; if empty, it is the first one.
	Address  string
	CA       []byte                // in PEM; if empty, the cloud reports it
	Account  *types.NamespacedName // the service account to use; the identity of the process when nil
	Audience string                // of the service account's token; the default of the cloud when empty
}

// ClusterAccess is what a client of a cluster needs.
type ClusterAccess struct {
	Address string // an https URL
	CA      []byte // in PEM; the authorities of the system when empty
	// Token returns a bearer token and the time when it expires. It is renewed shortly before.
	Token func(ctx context.Context) (string, time.Time, error)
}

// endpoint holds the addresses of a cluster, as the cloud reports them.
type endpoint struct {
	addresses []string          // as host or host:port, or as URLs; the first is the default
	ca        map[string][]byte // by address; none if the authorities of the system apply
}

// Cluster returns the access to a cluster. It reads missing fields of the request from the cloud's API, and checks that
// the address is one of the cluster: a token of the process is sent only to addresses that the cloud reports. The
// error is a fault.
func (i *Identities) Cluster(ctx context.Context, r ClusterRequest) (*ClusterAccess, error) {
	s, err := i.subject(ctx, r.Account)
	if err != nil {
		return nil, err
	}
	s.audience = r.Audience
	m, err := i.managed(r)
	if err != nil {
		return nil, err
	}
	access := &ClusterAccess{Address: normalizeAddress(r.Address), CA: r.CA}
	if r.Address == "" || len(r.CA) == 0 || s.isProcess() {
		if r.Cluster == "" {
			return nil, authFault("the name of the cluster is not set").
				WithHint("Set 'cluster' to its full name; it is optional only if address, ca.crt and " +
					"serviceAccountName are set").Final()
		}
		key := keyOf(append(s.key(roleAnnotation, clientAnnotation, tenantAnnotation, gcpAccountAnnotation,
			gcpProviderAnnotation), r.Provider, r.Cluster)...)
		e, err := i.endpoints.get(ctx, i.cacheOptions(), key, func() (endpoint, time.Time, error) {
			e, err := m.describe(ctx, s)
			return e, now(i.Clock).Add(maxTTL), err
		})
		if err != nil {
			return nil, err
		}
		if err := access.complete(r, e); err != nil {
			return nil, err
		}
	}
	access.Token = func(ctx context.Context) (string, time.Time, error) {
		s, err := i.subject(ctx, r.Account)
		if err != nil {
			return "", time.Time{}, err
		}
		s.audience = r.Audience
		return m.token(ctx, s)
	}
	return access, nil
}

// managed holds the functions for a cluster of a cloud.
type managed struct {
	describe func(ctx context.Context, s subject) (endpoint, error)
	token    func(ctx context.Context, s subject) (string, time.Time, error)
}

func (i *Identities) managed(r ClusterRequest) (managed, error) {
	switch r.Provider {
	case AWS:
		return i.eks(r.Cluster)
	case Azure:
		return i.aks(r.Cluster)
	case GCP:
		return i.gke(r.Cluster)
	}
	return managed{}, unsupportedProvider(r.Provider)
}

// complete sets the missing fields from the endpoint, and checks the address of the request.
func (a *ClusterAccess) complete(r ClusterRequest, e endpoint) error {
	if len(e.addresses) == 0 {
		return authFault("cluster '%s' has no address yet", r.Cluster).WithHint("Wait until it is created, or " +
			"enable one of its endpoints")
	}
	var known []string
	for _, address := range e.addresses {
		known = append(known, normalizeAddress(address))
	}
	a.Address = cmp.Or(a.Address, known[0])
	at := slices.Index(known, a.Address)
	if at < 0 {
		return authFault("'%s' is not an address of cluster '%s'", a.Address, r.Cluster).
			WithHint("Remove the key 'address', or set it to one of: %s", strings.Join(known, ", ")).Final()
	}
	if len(a.CA) == 0 {
		a.CA = e.ca[e.addresses[at]]
	}
	return nil
}

// normalizeAddress returns an address as an https URL without the default port; empty if the address is empty.
func normalizeAddress(address string) string {
	if address == "" {
		return ""
	}
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Host = strings.TrimSuffix(strings.ToLower(u.Host), ":443")
	return strings.TrimSuffix(u.String(), "/")
}

// callCloudAPI sends a request to the API of a cloud, and decodes the JSON of its answer. permission is what the
// identity needs for it, for the hint.
func (i *Identities) callCloudAPI(s subject, req *http.Request, cluster, permission string, into any) error {
	resp, err := i.client().Do(req)
	if err != nil {
		return exchangeFault(fault.WithoutURL(err), s, "cannot read cluster '%s' from the cloud's API", cluster)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return exchangeFault(err, s, "cannot read cluster '%s' from the cloud's API", cluster)
	}
	if resp.StatusCode == http.StatusOK {
		if json.Unmarshal(body, into) != nil {
			return authFault("cannot parse the cloud's description of cluster '%s'", cluster)
		}
		return nil
	}
	var response struct { // {"message"} of AWS, {"error": {"message"}} of Azure and Google
		Message string
		Error   struct{ Message string }
	}
	_ = json.Unmarshal(body, &response) // without a message, the status is reported
	message := firstLine(strings.TrimSuffix(resp.Status+": "+cmp.Or(response.Message, response.Error.Message), ": "))
	f := authFault("cannot read cluster '%s' from the cloud's API", cluster).Because(errors.New(message))
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		return f // the cloud's API has a problem of its own
	}
	return f.WithHint("Check the name, and that the identity has %s", permission)
}

// decodeCA decodes a certificate authority in base64.
func decodeCA(encoded string) []byte {
	ca, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	return ca
}
