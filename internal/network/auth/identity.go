package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/oauth2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Clouds with support for workload identity, as in spec.provider.
const (
	AWS   = "aws"
	Azure = "azure"
	GCP   = "gcp"
)

// Accounts reads service accounts and creates their tokens.
type Accounts interface {
	// Annotations returns the annotations of a service account.
	Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error)
	// Token creates a short-lived token of the account for an audience.
	Token(ctx context.Context, account types.NamespacedName, audience string) (string, error)
}

// Identities exchanges the workload identity of a service account for credentials, or the identity of the process if
// no account is named. Tokens are sent to hosts of their cloud only, whichever URL an object contains.
//
// Credentials are cached until shortly before they expire, at most one hour, and are never shared between service
// accounts. The zero value supports the identity of the process.
type Identities struct {
	Accounts  Accounts           // service accounts are rejected when nil
	Transport http.RoundTripper  // to the APIs of clouds; http.DefaultTransport when nil
	Metadata  http.RoundTripper  // to the metadata server of GKE, a link-local address; http.DefaultTransport when nil
	Clock     clock.PassiveClock // the real one when nil
	// CacheCapacity is the maximum number of cached credentials of each kind; 10,000 when 0, no cache when negative.
	CacheCapacity int
	// DefaultAccount is the name of the service account, in the namespace of the object, for objects that name none;
	// they use the identity of the process when it is empty.
	DefaultAccount string

	cacheCounts cacheCounts
	aws         cache[aws.Credentials]
	azure       cache[azcore.AccessToken]
	gcp         cache[*oauth2.Token]
	registries  cache[authn.AuthConfig]
	endpoints   cache[endpoint]
}

// Account returns the service account whose identity an object of the namespace uses; nil for the identity of the
// process. name is the account that the object names; may be empty.
func (i *Identities) Account(namespace, name string) *types.NamespacedName {
	if name == "" && i != nil {
		name = i.DefaultAccount
	}
	if name == "" {
		return nil
	}
	return &types.NamespacedName{Namespace: namespace, Name: name}
}

// subject is the owner of an identity: a service account, or the process when account is empty.
type subject struct {
	account     types.NamespacedName
	annotations map[string]string
	audience    string // of the account's token; the default of the cloud when empty
}

// isProcess reports whether the identity is the identity of the process.
func (s subject) isProcess() bool { return s.account.Name == "" }

// key returns the parts of a cache key that identify the subject: everything that its credentials depend on.
func (s subject) key(annotations ...string) []string {
	parts := []string{s.account.Namespace, s.account.Name, s.audience}
	for _, a := range annotations {
		parts = append(parts, s.annotations[a])
	}
	return parts
}

func (i *Identities) subject(ctx context.Context, account *types.NamespacedName) (subject, error) {
	if account == nil {
		return subject{}, nil
	}
	if i.Accounts == nil {
		return subject{}, authFault("the identity of service account '%s' cannot be used here", account).
			WithHint("Remove spec.serviceAccountName, or allow the controller to create tokens of service accounts").
			Final()
	}
	annotations, err := i.Accounts.Annotations(ctx, *account)
	if err != nil {
		return subject{}, accountFault(err, "cannot read service account '%s'", account)
	}
	return subject{account: *account, annotations: annotations}, nil
}

// token creates a token of the subject's service account.
func (i *Identities) token(ctx context.Context, s subject, audience string) (string, error) {
	token, err := i.Accounts.Token(ctx, s.account, cmp.Or(s.audience, audience))
	if err != nil {
		return "", accountFault(err, "cannot create a token of service account '%s'", s.account)
	}
	return token, nil
}

func (i *Identities) client() *http.Client {
	return &http.Client{Transport: cmp.Or(i.Transport, http.DefaultTransport)}
}

// Registry returns the login to the registry of a URL: ECR and public ECR for aws, ACR for azure, Artifact Registry
// and Container Registry for gcp. The error is a fault.
func (i *Identities) Registry(ctx context.Context, provider, rawURL string,
	account *types.NamespacedName) (authn.Authenticator, error) {
	host := hostOf(rawURL)
	s, err := i.subject(ctx, account)
	if err != nil {
		return nil, err
	}
	var login authn.AuthConfig
	switch provider {
	case AWS:
		login, err = i.ecr(ctx, host, s)
	case Azure:
		login, err = i.acr(ctx, host, s)
	case GCP:
		login, err = i.gar(ctx, host, s)
	default:
		err = unsupportedProvider(provider)
	}
	if err != nil {
		return nil, err
	}
	return authn.FromConfig(login), nil
}

// Git returns the login to the git repository of a URL: CodeCommit for aws, Azure DevOps for azure. It is valid for
// some minutes. The error is a fault.
func (i *Identities) Git(ctx context.Context, provider, rawURL string, account *types.NamespacedName) (GitCredentials,
	error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "https" {
		return GitCredentials{}, fault.New(meta.URLInvalidReason,
			"workload identity requires an https URL").
			WithHint("Use an https:// URL in spec.url, or another spec.provider").Final()
	}
	s, err := i.subject(ctx, account)
	if err != nil {
		return GitCredentials{}, err
	}
	switch provider {
	case AWS:
		return i.codeCommit(ctx, u, s)
	case Azure:
		return i.azureDevOps(ctx, u, s)
	}
	return GitCredentials{}, unsupportedProvider(provider)
}

// hostOf returns the host of a URL, in lower case and without the port. The scheme may be missing.
func hostOf(rawURL string) string {
	if !strings.Contains(rawURL, "://") {
		rawURL = "oci://" + rawURL
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

func unsupportedProvider(provider string) error {
	return authFault("provider '%s' does not support workload identity here", provider).
		WithHint("Set spec.provider to generic, and spec.secretRef to a Secret with a login").Final()
}

// foreignHost returns the fault for a host that is not one of the cloud, and so must not receive its tokens.
func foreignHost(cloud, host, want string) error {
	return fault.New(meta.URLInvalidReason, "host '%s' is not a host of provider %s, so no token is sent to it",
		host, cloud).
		WithHint("Use %s in spec.url, or another spec.provider", want).Final()
}

// tokenHosts are the hosts to which tokens may be sent for a Bucket: the storage of the cloud, and for AWS its Security
// Token Service, since S3 takes no tokens.
var tokenHosts = map[string]struct {
	host *regexp.Regexp
	want string
}{
	AWS: {host: regexp.MustCompile(`^(vpce-[a-z0-9-]+\.)?sts(-fips)?(\.` + awsRegion +
		`)?(\.vpce)?\.(amazonaws\.com|amazonaws\.com\.cn|amazonaws\.eu|api\.aws)$`),
		want: "https://sts.REGION.amazonaws.com"},
	Azure: {
		host: regexp.MustCompile(`^[a-z0-9-]+\.(z[0-9]+\.)?(blob|dfs)\.(core\.windows\.net|core\.chinacloudapi\.cn|` +
			`core\.usgovcloudapi\.net|storage\.azure\.net)$`), want: "https://ACCOUNT.blob.core.windows.net"},
	GCP: {host: regexp.MustCompile(`^(storage|[a-z0-9._-]+\.storage|storage-[a-z0-9-]+\.p|www)\.googleapis\.com$`),
		want: "storage.googleapis.com"},
}

// CheckEndpoint returns a fault for an endpoint of a Bucket to which no token of the cloud's workload identity may be
// sent: a host that is not the cloud's, or plain HTTP. Anyone who receives the token could use it.
func CheckEndpoint(provider, endpoint string, insecure bool) error {
	allowed, ok := tokenHosts[provider]
	if !ok {
		return unsupportedProvider(provider)
	}
	if host := hostOf(endpoint); insecure || strings.HasPrefix(strings.ToLower(endpoint), "http:") ||
		!allowed.host.MatchString(host) {
		return authFault("endpoint '%s' must not receive a token of provider %s", host, provider).
			WithHint("Use an endpoint such as %s with TLS, or set spec.secretRef to a Secret with credentials",
				allowed.want).Final()
	}
	return nil
}

// CheckAuthorities returns a fault for a login with the identity of the process over TLS that trusts authorities of an
// object. Whoever controls them and a proxy could read the login. The identity of a service account may be used so, as
// it belongs to whoever controls the object. A nil account is the process; field names the Secret of the authorities.
func CheckAuthorities(account *types.NamespacedName, t TLS, field string) error {
	if account != nil || len(t.CA) == 0 {
		return nil
	}
	return authFault("the identity of the controller cannot be used with the authority in ca.crt of %s", field).
		WithHint("Remove ca.crt, and let the controller trust the authority by the environment variable " +
			"SSL_CERT_DIR; or use the identity of a ServiceAccount")
}

func authFault(format string, args ...any) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, format, args...)
}

// accountFault returns the fault for a request about a service account.
func accountFault(err error, format string, args ...any) *fault.Fault {
	f := authFault(format, args...).Because(err)
	switch {
	case apierrors.IsNotFound(err):
		return f.WithHint("Create the service account, or correct spec.serviceAccountName")
	case apierrors.IsForbidden(err):
		return f.WithHint("Allow the controller to get serviceaccounts and to create serviceaccounts/token, which " +
			"sluice install does")
	}
	return f
}

// exchangeFault returns the fault for a cloud that issued no credentials. It shortens the cause to one line: errors of
// the SDKs have many lines, and contain request identifiers that change each time.
func exchangeFault(err error, s subject, format string, args ...any) error {
	f := authFault(format, args...)
	if s.isProcess() {
		f = f.WithHint("Check that the ServiceAccount of the controller has an identity of the cloud with the " +
			"required permissions")
	} else {
		f = f.WithHint("Check the annotations of service account '%s', and the trust between the cloud and the cluster",
			s.account)
	}
	var cause *fault.Fault
	var api smithy.APIError
	var entra *azidentity.AuthenticationFailedError
	var token *oauth2.RetrieveError
	switch {
	case errors.As(err, &cause), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return f.Because(err)
	case errors.As(err, &api):
		return f.Because(errors.New(firstLine(api.ErrorCode() + ": " + api.ErrorMessage())))
	case errors.As(err, &entra) && entra.RawResponse != nil:
		return f.Because(errors.New(entraMessage(entra.RawResponse)))
	case errors.As(err, &token):
		return f.Because(errors.New(firstLine(token.ErrorCode + ": " + token.ErrorDescription)))
	}
	return f.Because(errors.New(firstLine(err.Error())))
}

// entraMessage returns the first line of an error of Microsoft Entra. Further lines contain a time and identifiers.
func entraMessage(resp *http.Response) string {
	var response struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || json.Unmarshal(body, &response) != nil || response.Error == "" {
		return resp.Status
	}
	first, _, _ := strings.Cut(response.Description, "\n")
	first, _, _ = strings.Cut(first, " Trace ID:")
	return firstLine(response.Error + ": " + first)
}

const (
	maxAnswer  = 1 << 20 // bytes
	maxMessage = 300     // bytes of a cloud's message
)

// firstLine returns the first line of a cloud's message, shortened.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimSuffix(excerpt.Line(s, maxMessage), ":")
}
