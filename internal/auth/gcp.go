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
	gcpAccountAnnotation  = "iam.gke.io/gcp-service-account"                // that is impersonated; optional
	gcpProviderAnnotation = "gcp.auth.fluxcd.io/workload-identity-provider" // of clusters outside of GKE

	gcpScope       = "https://www.googleapis.com/auth/cloud-platform"
	impersonateURL = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"
	garUser        = "oauth2accesstoken"
)

var (
	garHost     = regexp.MustCompile(`^(gcr\.io|[a-z0-9-]+\.gcr\.io|[a-z0-9-]+-docker\.pkg\.dev|docker\.pkg\.dev)$`)
	gcpAccount  = regexp.MustCompile(`^[a-z0-9-]{1,63}@[a-z0-9.-]{1,100}\.gserviceaccount\.com$`)
	gcpProvider = regexp.MustCompile(`^projects/[0-9]{1,30}/locations/global/workloadIdentityPools/[a-z0-9-]{1,100}/providers/[a-z0-9-]{1,100}$`)
)

// gcpSource gives tokens of a subject by way of the cache.
type gcpSource func() (*oauth2.Token, error)

// Token implements oauth2.TokenSource.
func (s gcpSource) Token() (*oauth2.Token, error) { return s() }

// GCP returns a source of tokens for the scopes (cloud-platform when there are none), such as for Cloud
// Storage and KMS. It may be used as long as ctx lasts. Whoever uses it must see to it that the host is
// Google's: its tokens speak for themselves. The error is a fault.
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
	return i.gcp.get(ctx, i.keeping(), key, func() (*oauth2.Token, time.Time, error) {
		fetch := i.federated
		if s.none() {
			fetch = i.ambientGCP
		}
		source, err := fetch(ctx, s, scopes)
		if err != nil {
			return nil, time.Time{}, err
		}
		token, err := source.Token()
		if err != nil {
			return nil, time.Time{}, exchangeFault(err, s, "Google Cloud gave no token")
		}
		return token, token.Expiry, nil
	})
}

// ambientGCP is what the process has: application default credentials, or the identity that the metadata
// server gives it.
func (i *Identities) ambientGCP(ctx context.Context, s subject, scopes []string) (oauth2.TokenSource, error) {
	credentials, err := google.FindDefaultCredentials(ctx, scopes...)
	if err != nil {
		return nil, exchangeFault(err, s, "there is no Google Cloud identity of the controller")
	}
	return credentials.TokenSource, nil
}

// federated exchanges a token of the service account at Google's security token service, and impersonates the
// Google service account of the annotation, if there is one.
func (i *Identities) federated(ctx context.Context, s subject, scopes []string) (oauth2.TokenSource, error) {
	pool, err := i.pool(ctx, s)
	if err != nil {
		return nil, err
	}
	c := externalaccount.Config{
		Audience: pool.audience, SubjectTokenType: "urn:ietf:params:oauth:token-type:jwt", Scopes: scopes,
		SubjectTokenSupplier: supplier(func(ctx context.Context) (string,
			error) {
			return i.token(ctx, s, pool.tokenAudience)
		}),
	}
	if email := s.annotations[gcpAccountAnnotation]; email != "" {
		if !gcpAccount.MatchString(email) {
			return nil, authFault("the annotation %s of service account '%s' is not the name of a Google "+
				"service account", gcpAccountAnnotation, s.account).
				WithHint("Write it as NAME@PROJECT.iam.gserviceaccount.com")
		}
		c.ServiceAccountImpersonationURL = impersonateURL + email + ":generateAccessToken"
	}
	source, err := externalaccount.NewTokenSource(context.WithValue(ctx, oauth2.HTTPClient, i.client()), c)
	if err != nil {
		return nil, exchangeFault(err, s, "the Google Cloud identity of service account '%s' cannot be used", s.account)
	}
	return source, nil
}

// pool is where tokens of service accounts are trusted.
type pool struct {
	audience      string // of the exchange
	tokenAudience string // of the service account's token
}

// pool returns the provider that the annotation names, or the pool of the GKE cluster that the process runs in.
func (i *Identities) pool(ctx context.Context, s subject) (pool, error) {
	if name := s.annotations[gcpProviderAnnotation]; name != "" {
		if !gcpProvider.MatchString(name) {
			return pool{}, authFault("the annotation %s of service account '%s' is not the name of a provider",
				gcpProviderAnnotation, s.account).
				WithHint("Write it as projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER")
		}
		return pool{"//iam.googleapis.com/" + name, "https://iam.googleapis.com/" + name}, nil
	}
	client := metadata.NewClient(&http.Client{Transport: cmp.Or(i.Metadata, http.DefaultTransport),
		Timeout: metadataTimeout})
	var said [3]string
	for n, path := range []string{"project/project-id", "instance/attributes/cluster-location",
		"instance/attributes/cluster-name"} {
		v, err := client.GetWithContext(ctx, path)
		if err != nil {
			return pool{}, authFault("service account '%s' lacks the annotation %s, and the cluster is not one of GKE",
				s.account, gcpProviderAnnotation).
				WithHint("Set it to the workload identity provider that trusts the cluster")
		}
		said[n] = strings.TrimSpace(v)
	}
	trust := said[0] + ".svc.id.goog"
	cluster := "https://container.googleapis.com/v1/projects/" + said[0] + "/locations/" + said[1] +
		"/clusters/" + said[2]
	return pool{"identitynamespace:" + trust + ":" + cluster, trust}, nil
}

// metadataTimeout bounds a question to the metadata server, which does not exist outside of Google's cloud.
const metadataTimeout = 5 * time.Second

// supplier gives the token that is exchanged.
type supplier func(ctx context.Context) (string, error)

// SubjectToken implements externalaccount.SubjectTokenSupplier.
func (s supplier) SubjectToken(ctx context.Context, _ externalaccount.SupplierOptions) (string, error) {
	return s(ctx)
}

func (i *Identities) gar(ctx context.Context, host string, s subject) (authn.AuthConfig, error) {
	if !garHost.MatchString(host) {
		return authn.AuthConfig{}, notOf(GCP, host, "REGION-docker.pkg.dev")
	}
	token, err := i.gcpToken(ctx, s, nil)
	if err != nil {
		return authn.AuthConfig{}, err
	}
	return authn.AuthConfig{Username: garUser, Password: token.AccessToken}, nil
}
