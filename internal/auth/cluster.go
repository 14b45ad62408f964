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
)

// ClusterRequest asks for access to the API server of a cluster that a cloud manages: EKS of aws, AKS of
// azure, GKE of gcp.
type ClusterRequest struct {
	Provider string
	// its full name in the cloud's API; may be empty for azure and gcp if Address and CA are not
	Cluster string
	// of the API server; the first one that the cloud names when empty, else it must be one of them
	Address  string
	CA       []byte                // in PEM; what the cloud says when empty
	Account  *types.NamespacedName // the service account whose identity is used; that of the process when nil
	Audience string                // of the service account's token; what the cloud wants when empty
}

// ClusterAccess is how to reach the API server of a cluster.
type ClusterAccess struct {
	Address string // an https URL
	CA      []byte // in PEM; the certificates of the system count when empty
	// Token returns a bearer token and when it ends. It is made anew when the one before is about to end.
	Token func(ctx context.Context) (string, time.Time, error)
}

// endpoint is what a cloud says of a cluster.
type endpoint struct {
	addresses []string          // as host or host:port, or as URLs; the first is the default
	ca        map[string][]byte // by address; none where the certificates of the system count
}

// Cluster finds out how to reach a cluster. The cloud is asked for what the request leaves open, and whether
// the address is one of the cluster's: a token of the process itself goes to no address that the cloud does
// not name. The error is a fault.
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
	access := &ClusterAccess{Address: normal(r.Address), CA: r.CA}
	if r.Address == "" || len(r.CA) == 0 || s.none() {
		if r.Cluster == "" {
			return nil, authFault("the cluster is not named").
				WithHint("Set cluster to its full name; only with address, ca.crt and serviceAccountName it can " +
					"be left out").Final()
		}
		key := keyOf(append(s.key(roleAnnotation, clientAnnotation, tenantAnnotation, gcpAccountAnnotation,
			gcpProviderAnnotation), r.Provider, r.Cluster)...)
		e, err := i.endpoints.get(ctx, i.keeping(), key, func() (endpoint, time.Time, error) {
			e, err := m.describe(ctx, s)
			return e, now(i.Clock).Add(maxKeep), err
		})
		if err != nil {
			return nil, err
		}
		if err := access.settle(r, e); err != nil {
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

// managed is a cluster of a cloud.
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
	return managed{}, unknownProvider(r.Provider)
}

// settle fills in what the request left open, and checks what it did not.
func (a *ClusterAccess) settle(r ClusterRequest, e endpoint) error {
	if len(e.addresses) == 0 {
		return authFault("the cluster %s has no address yet", r.Cluster).WithHint("Wait until it is created")
	}
	var known []string
	for _, address := range e.addresses {
		known = append(known, normal(address))
	}
	a.Address = cmp.Or(a.Address, known[0])
	at := slices.Index(known, a.Address)
	if at < 0 {
		return authFault("%s is no address of the cluster %s", a.Address, r.Cluster).
			WithHint("Remove the key address, or set it to one of %s", strings.Join(known, ", ")).Final()
	}
	if len(a.CA) == 0 {
		a.CA = e.ca[e.addresses[at]]
	}
	return nil
}

// normal writes an address as an https URL, without the port where it is the usual one; empty stays empty.
func normal(address string) string {
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

// askCloud carries out a request to the API of a cloud, and reads its JSON into the answer. Right is what the
// identity needs for it.
func (i *Identities) askCloud(s subject, req *http.Request, cluster, right string, into any) error {
	resp, err := i.client().Do(req)
	if err != nil {
		return exchangeFault(withoutURL(err), s, "cannot ask the cloud for the cluster %s", cluster)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return exchangeFault(err, s, "cannot ask the cloud for the cluster %s", cluster)
	}
	if resp.StatusCode == http.StatusOK {
		if json.Unmarshal(body, into) != nil {
			return authFault("what the cloud says of the cluster %s cannot be read", cluster)
		}
		return nil
	}
	var said struct { // {"message"} of AWS, {"error": {"message"}} of Azure and Google
		Message string
		Error   struct{ Message string }
	}
	_ = json.Unmarshal(body, &said) // the status is told in any case
	words := firstLine(strings.TrimSuffix(resp.Status+": "+cmp.Or(said.Message, said.Error.Message), ": "))
	return authFault("the cloud does not tell of the cluster %s", cluster).Because(errors.New(words)).
		WithHint("Check its name, and that the identity has %s", right)
}

// decodeCA reads a certificate authority as clouds write it, in base64.
func decodeCA(encoded string) []byte {
	ca, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	return ca
}
