package auth

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/google/externalaccount"
	"k8s.io/apimachinery/pkg/types"
)

const (
	gcpAccountAnnotation  = "iam.gke.io/gcp-service-account"                // to impersonate; optional
	gcpProviderAnnotation = "gcp.auth.fluxcd.io/workload-identity-provider" // for clusters outside of GKE

	gcpScope       = "https://www.googleapis.com/auth/cloud-platform"
	impersonateURL = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"
	garUser        = "oauth2accesstoken"
)

var (
	garHost     = regexp.MustCompile(`^(gcr\.io|[a-z0-9-]+\.gcr\.io|[a-z0-9-]+-docker\.pkg\.dev|docker\.pkg\.dev)$`)
	gcpAccount  = regexp.MustCompile(`^[a-z0-9-]{1,63}@[a-z0-9.-]{1,100}\.gserviceaccount\.com$`)
	gcpProvider = regexp.MustCompile(`^projects/[0-9]{1,30}/locations/global/workloadIdentityPools/` +
		`[a-z0-9-]{1,100}/providers/[a-z0-9-]{1,100}$`)
)

// gcpSource returns cached tokens of an account.
type gcpSource func() (*oauth2.Token, error)

// Token implements [oauth2.TokenSource].
func (s gcpSource) Token() (*oauth2.Token, error) { return s() }

// GCP returns a source of tokens for the scopes (cloud-platform by default), such as for Cloud Storage and KMS. It is
// valid until ctx ends. The caller must send its tokens to hosts of Google only, since anyone who receives a token can
// use it. The error is a fault.
func (i *Identities) GCP(ctx context.Context, account *types.NamespacedName, scopes ...string) (oauth2.TokenSource,
	error) {
	source := gcpSource(func() (*oauth2.Token, error) {
		s, err := i.subject(ctx, account)
		if err != nil {
			return nil, err
		}
		return i.gcpToken(ctx, s, scopes)
	})
	if _, err := source.Token(); err != nil {
		return nil, err
	}
	return source, nil
}

func (i *Identities) gcpToken(ctx context.Context, s subject, scopes []string) (*oauth2.Token, error) {
	if len(scopes) == 0 {
		scopes = []string{gcpScope}
	}
	key := keyOf(append(s.key(gcpAccountAnnotation, gcpProviderAnnotation), strings.Join(scopes, " "))...)
	return i.gcp.get(ctx, i.cacheOptions(), key, func() (*oauth2.Token, time.Time, error) {
		fetch := i.federated
		if s.isProcess() {
			fetch = i.ambientGCP
		}
		source, err := fetch(ctx, s, scopes)
		if err != nil {
			return nil, time.Time{}, err
		}
		token, err := source.Token()
		if err != nil {
			return nil, time.Time{}, exchangeFault(err, s, "Google Cloud issued no token")
		}
		return token, token.Expiry, nil
	})
}

// ambientGCP returns the tokens of the process: application default credentials, or the identity from the metadata
// server.
func (i *Identities) ambientGCP(ctx context.Context, s subject, scopes []string) (oauth2.TokenSource, error) {
	credentials, err := google.FindDefaultCredentials(ctx, scopes...)
	if err != nil {
		return nil, exchangeFault(err, s, "the controller has no Google Cloud identity")
	}
	return credentials.TokenSource, nil
}

// federated exchanges a token of the service account at Google's security token service, and impersonates the Google
// service account in the annotation, if it is set.
func (i *Identities) federated(ctx context.Context, s subject, scopes []string) (oauth2.TokenSource, error) {
	pool, err := i.pool(ctx, s)
	if err != nil {
		return nil, err
	}
	c := externalaccount.Config{
		Audience: pool.audience, SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt", Scopes: scopes,
		SubjectTokenSupplier: supplier(func(ctx context.Context) (string, error) {
			return i.token(ctx, s, pool.tokenAudience)
		}),
	}
	if email := s.annotations[gcpAccountAnnotation]; email != "" {
		if !gcpAccount.MatchString(email) {
			return nil, authFault("the annotation %s of service account '%s' is not the name of a Google "+
				"service account", gcpAccountAnnotation, s.account).
				WithHint("Use the form NAME@PROJECT.iam.gserviceaccount.com")
		}
		c.ServiceAccountImpersonationURL = impersonateURL + email + ":generateAccessToken"
	}
	source, err := externalaccount.NewTokenSource(context.WithValue(ctx, oauth2.HTTPClient, i.client()), c)
	if err != nil {
		return nil, exchangeFault(err, s, "cannot use the Google Cloud identity of service account '%s'", s.account)
	}
	return source, nil
}

// pool is a workload identity pool, which trusts tokens of service accounts.
type pool struct {
	audience      string // of the exchange
	tokenAudience string // of the service account's token
}

// pool returns the pool of the provider in the annotation, or the pool of the GKE cluster of the process.
func (i *Identities) pool(ctx context.Context, s subject) (pool, error) {
	if name := s.annotations[gcpProviderAnnotation]; name != "" {
		if !gcpProvider.MatchString(name) {
			return pool{}, authFault("the annotation %s of service account '%s' is not the name of a provider",
				gcpProviderAnnotation, s.account).
				WithHint("Use the form projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER")
		}
		return pool{"//iam.googleapis.com/" + name, "https://iam.googleapis.com/" + name}, nil
	}
	client := metadata.NewClient(&http.Client{Transport: cmp.Or(i.Metadata, http.DefaultTransport),
		Timeout: metadataTimeout})
	var values [3]string
	for n, path := range []string{"project/project-id", "instance/attributes/cluster-location",
		"instance/attributes/cluster-name"} {
		v, err := client.GetWithContext(ctx, path)
		if err != nil {
			return pool{}, authFault("service account '%s' has no annotation %s, and the cluster is not on GKE",
				s.account, gcpProviderAnnotation).
				WithHint("Set the annotation to the workload identity provider that trusts the cluster")
		}
		values[n] = strings.TrimSpace(v)
	}
	trust := values[0] + ".svc.id.goog"
	cluster := "https://container.googleapis.com/v1/projects/" + values[0] + "/locations/" + values[1] +
		"/clusters/" + values[2]
	return pool{"identitynamespace:" + trust + ":" + cluster, trust}, nil
}

// metadataTimeout bounds a request to the metadata server, which exists in Google's cloud only.
const metadataTimeout = 5 * time.Second

// supplier returns the token to exchange.
type supplier func(ctx context.Context) (string, error)

// SubjectToken implements [externalaccount.SubjectTokenSupplier].
func (s supplier) SubjectToken(ctx context.Context, _ externalaccount.SupplierOptions) (string, error) {
	return s(ctx)
}

func (i *Identities) gar(ctx context.Context, host string, s subject) (authn.AuthConfig, error) {
	if !garHost.MatchString(host) {
		return authn.AuthConfig{}, foreignHost(GCP, host, "REGION-docker.pkg.dev")
	}
	token, err := i.gcpToken(ctx, s, nil)
	if err != nil {
		return authn.AuthConfig{}, err
	}
	return authn.AuthConfig{Username: garUser, Password: token.AccessToken}, nil
}
