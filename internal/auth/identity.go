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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Clouds whose workload identity is known: the values of spec.provider.
const (
	AWS   = "aws"
	Azure = "azure"
	GCP   = "gcp"
)

// Accounts is what the cluster knows of service accounts.
type Accounts interface {
	// Annotations returns the annotations of a service account.
	Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error)
	// Token makes a short-lived token of the account for an audience.
	Token(ctx context.Context, account types.NamespacedName, audience string) (string, error)
}

// Identities turns workload identity into credentials: that of a service account where one is named, else
// that of the process. A token goes to hosts of its own cloud only, whatever URL an object names.
//
// What it gets is kept until shortly before it expires, an hour at most, and is never shared between service
// accounts. Its zero value serves for the identity of the process.
type Identities struct {
	Accounts  Accounts           // service accounts are refused when nil
	Transport http.RoundTripper  // for the exchange of tokens, from egress; http.DefaultTransport when nil
	Metadata  http.RoundTripper  // to the metadata server of GKE, which is link-local; http.DefaultTransport when nil
	Clock     clock.PassiveClock // the real one when nil
	Keep      int                // how many credentials of a kind are kept; 10,000 when 0, none when negative
	// DefaultAccount is the name of the service account whose identity objects use that name none, in their
	// namespace; the process's when empty.
	DefaultAccount string

	uses       uses
	aws        cache[aws.Credentials]
	azure      cache[azcore.AccessToken]
	gcp        cache[*oauth2.Token]
	registries cache[authn.AuthConfig]
	endpoints  cache[endpoint]
}

// Account is the service account whose identity an object of a namespace uses, which names one or none; nil
// for that of the process.
func (i *Identities) Account(namespace, named string) *types.NamespacedName {
	if named == "" && i != nil {
		named = i.DefaultAccount
	}
	if named == "" {
		return nil
	}
	return &types.NamespacedName{Namespace: namespace, Name: named}
}

// subject is whose identity it is; the process's when it has no account.
type subject struct {
	account     types.NamespacedName
	annotations map[string]string
	audience    string // of the account's token, in place of what the cloud usually wants
}

// none tells that the identity is that of the process.
func (s subject) none() bool { return s.account.Name == "" }

// key returns the parts of a cache's key that tell subjects apart: all that their credentials are made of.
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
		return subject{}, authFault("the identity of service account '%s' cannot be used", account).
			WithHint("Remove spec.serviceAccountName, or let the controller make tokens of service accounts").Final()
	}
	annotations, err := i.Accounts.Annotations(ctx, *account)
	if err != nil {
		return subject{}, authFault("cannot read service account '%s'", account).Because(err).
			WithHint("Create it, or correct spec.serviceAccountName")
	}
	return subject{account: *account, annotations: annotations}, nil
}

// token makes a token of the subject's service account.
func (i *Identities) token(ctx context.Context, s subject, audience string) (string, error) {
	token, err := i.Accounts.Token(ctx, s.account, cmp.Or(s.audience, audience))
	if err != nil {
		return "", authFault("cannot make a token of service account '%s'", s.account).Because(err).
			WithHint("The controller must be allowed to create serviceaccounts/token")
	}
	return token, nil
}

func (i *Identities) client() *http.Client {
	return &http.Client{Transport: cmp.Or(i.Transport, http.DefaultTransport)}
}

// Registry returns the login to the registry of a URL: ECR and public ECR of aws, ACR of azure, Artifact and
// Container Registry of gcp. The error is a fault.
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
		err = unknownProvider(provider)
	}
	if err != nil {
		return nil, err
	}
	return authn.FromConfig(login), nil
}

// Git returns the login to the git repository of a URL: CodeCommit of aws, Azure DevOps of azure. It is good
// for some minutes. The error is a fault.
func (i *Identities) Git(ctx context.Context, provider, rawURL string, account *types.NamespacedName) (GitCredentials,
	error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "https" {
		return GitCredentials{}, fault.New(meta.URLInvalidReason,
			"workload identity needs a repository with an https URL").WithHint("Correct spec.url").Final()
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
	return GitCredentials{}, unknownProvider(provider)
}

// hostOf returns the host of a registry's URL, with a scheme or without, without the port.
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

func unknownProvider(provider string) error {
	return authFault("there is no workload identity of provider '%s' for this", provider).
		WithHint("Correct spec.provider").Final()
}

// notOf refuses to send a cloud's token to a host that is not the cloud's.
func notOf(cloud, host, want string) error {
	return fault.New(meta.URLInvalidReason, "%s is no host of provider %s, and gets none of its tokens", host, cloud).
		WithHint("Use %s in spec.url, or another spec.provider", want).Final()
}

// tokenHosts are those that tokens of a cloud's workload identity may go to, when they are sent for a Bucket:
// those of its storage, and the Security Token Service of AWS, whose storage wants no tokens.
var tokenHosts = map[string]struct {
	host *regexp.Regexp
	want string
}{
	AWS: {regexp.MustCompile(`^(vpce-[a-z0-9-]+\.)?sts(-fips)?(\.` + awsRegion +
		`)?(\.vpce)?\.(amazonaws\.com|amazonaws\.com\.cn|amazonaws\.eu|api\.aws)$`),
		"https://sts.REGION.amazonaws.com"},
	Azure: {regexp.MustCompile(`^[a-z0-9-]+\.(z[0-9]+\.)?(blob|dfs)\.(core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net|storage\.azure\.net)$`), "https://ACCOUNT.blob.core.windows.net"},
	GCP: {regexp.MustCompile(`^(storage|[a-z0-9._-]+\.storage|storage-[a-z0-9-]+\.p|www)\.googleapis\.com$`),
		"storage.googleapis.com"},
}

// CheckEndpoint refuses an endpoint of a Bucket to which a token of the cloud's workload identity must not
// go: one that is not the cloud's, or in plain HTTP. Whoever reads the token could use it. The error is a
// fault.
func CheckEndpoint(provider, endpoint string, insecure bool) error {
	allowed, ok := tokenHosts[provider]
	if !ok {
		return unknownProvider(provider)
	}
	if host := hostOf(endpoint); insecure || strings.HasPrefix(strings.ToLower(endpoint), "http:") ||
		!allowed.host.MatchString(host) {
		return authFault("the endpoint %s gets no token of provider %s", host, provider).
			WithHint("Write the endpoint as %s with TLS, or log in with a Secret in spec.secretRef",
				allowed.want).Final()
	}
	return nil
}

func authFault(format string, args ...any) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, format, args...)
}

// exchangeFault tells in one line why a cloud gave no credentials: what its SDK says runs over many lines,
// and holds identifiers of requests that change every time.
func exchangeFault(err error, s subject, format string, args ...any) error {
	f := authFault(format, args...)
	if s.none() {
		f = f.WithHint("Check the workload identity of the controller")
	} else {
		f = f.WithHint("Check the annotations of service account '%s', and that the cloud trusts the cluster for it",
			s.account)
	}
	var told *fault.Fault
	var api smithy.APIError
	var entra *azidentity.AuthenticationFailedError
	var token *oauth2.RetrieveError
	switch {
	case errors.As(err, &told), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return f.Because(err)
	case errors.As(err, &api):
		return f.Because(errors.New(firstLine(api.ErrorCode() + ": " + api.ErrorMessage())))
	case errors.As(err, &entra) && entra.RawResponse != nil:
		return f.Because(errors.New(entraWords(entra.RawResponse)))
	case errors.As(err, &token):
		return f.Because(errors.New(firstLine(token.ErrorCode + ": " + token.ErrorDescription)))
	}
	return f.Because(errors.New(firstLine(err.Error())))
}

// entraWords reads an error of Microsoft Entra: its first line, as those below hold a time and identifiers.
func entraWords(resp *http.Response) string {
	var said struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || json.Unmarshal(body, &said) != nil || said.Error == "" {
		return resp.Status
	}
	first, _, _ := strings.Cut(said.Description, "\n")
	first, _, _ = strings.Cut(first, " Trace ID:")
	return firstLine(said.Error + ": " + first)
}

const (
	maxAnswer = 1 << 20 // bytes
	maxWords  = 300     // bytes of what a cloud says
)

// firstLine is the first line of what a cloud says.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.TrimSuffix(excerpt.Line(s, maxWords), ":")
}
