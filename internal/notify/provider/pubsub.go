package provider

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	pubSubHost  = "https://pubsub.googleapis.com"
	pubSubScope = "https://www.googleapis.com/auth/pubsub"

	maxAttributes = 100 // of a Pub/Sub message
	maxCredential = 64 << 10
	tokenTimeout  = 30 * time.Second
)

// pubSub publishes the event: https://cloud.google.com/pubsub/docs/reference/rest/v1/projects.topics/publish.
type pubSub struct {
	client     *client
	to         *url.URL
	attributes map[string]string
	token      func(context.Context) (string, error)
}

var (
	gcpProject  = regexp.MustCompile(`^([a-z0-9.-]{1,100}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$`)
	pubSubTopic = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`)
)

func newPubSub(o Options) (Provider, error) {
	if !gcpProject.MatchString(o.Address) {
		return nil, invalid("the address of the Provider is not the ID of a Google Cloud project").
			WithHint("Set spec.address to a project ID, such as shop-prod-123")
	}
	if !pubSubTopic.MatchString(o.Channel) {
		return nil, invalid("the channel of the Provider is not the ID of a Pub/Sub topic").
			WithHint("Set spec.channel to the ID of the topic, without the path of the project")
	}
	attributes, err := attributesOf(o.Secret["headers"])
	if err != nil {
		return nil, err
	}
	token, err := o.google(pubSubScope)
	if err != nil {
		return nil, err
	}
	project, topic := o.Address, o.Channel
	o.Address, o.Headers = "", nil // the headers in the Secret are attributes of the message
	c, err := newClient(o, pubSubHost)
	if err != nil {
		return nil, err
	}
	return &pubSub{client: c, to: c.url("v1/projects", project, "topics", url.PathEscape(topic)+":publish"),
		attributes: attributes, token: token}, nil
}

type pubSubMessage struct {
	Data       []byte            `json:"data"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Send implements [Provider].
func (p *pubSub) Send(ctx context.Context, e event.Event) error {
	body, err := eventJSON(e)
	if err != nil {
		return err
	}
	token, err := p.token(ctx)
	if err != nil {
		return err
	}
	_, err = p.client.postJSON(ctx, p.to, map[string]any{"messages": []pubSubMessage{{Data: body,
		Attributes: p.attributes}}},
		"Authorization", "Bearer "+token)
	return err
}

// attributesOf parses the key headers of the Secret; the case of names is kept. The error does not contain the key.
func attributesOf(b []byte) (map[string]string, error) {
	var all map[string]string
	if len(b) > maxCredential || yamlsize.Check(b) != nil || yaml.UnmarshalStrict(b, &all) != nil ||
		len(all) > maxAttributes {
		return nil, invalid("the key headers of the Secret is not a YAML map of strings").
			WithHint("Write one line NAME: VALUE for each attribute, at most %d", maxAttributes)
	}
	return all, nil
}

// google returns a source of tokens for a scope: the JSON credentials in the Secret, or workload identity. The error
// is a Terminal fault.
func (o Options) google(scope string) (func(context.Context) (string, error), error) {
	raw := o.Secret["token"]
	if len(raw) == 0 {
		if o.Identity == nil {
			return nil, fault.New(TokenNotFound, "the Provider has no credentials for Google Cloud").
				WithHint("Store the JSON key of a service account in the key token of the Secret in spec.secretRef, " +
					"or set spec.serviceAccountName").Final()
		}
		return func(ctx context.Context) (string, error) { return o.Identity.Token(ctx, auth.GCP, scope) }, nil
	}
	kind, err := credentialsType(raw)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: egress.Unquoted(o.Transport), Timeout: tokenTimeout}
	credentials, err := google.CredentialsFromJSONWithType(context.WithValue(context.Background(), oauth2.HTTPClient,
		client),
		raw, kind, scope)
	if err != nil {
		return nil, invalidCredentials() // the error may contain parts of them
	}
	return func(context.Context) (string, error) {
		token, err := credentials.TokenSource.Token()
		if err != nil {
			return "", tokenFault(err)
		}
		return token.AccessToken, nil
	}, nil
}

func invalidCredentials() *fault.Fault {
	return invalid("the key token of the Secret does not contain Google Cloud credentials").
		WithHint("Store the JSON key of a service account in it")
}

// credentialsType returns the type of credentials in a file. Types that refer to files, URLs or programs are
// rejected.
func credentialsType(raw []byte) (google.CredentialsType, error) {
	var header struct {
		Type       string `json:"type"`
		PrivateKey string `json:"private_key"`
	}
	if len(raw) > maxCredential || json.Unmarshal(raw, &header) != nil {
		return "", invalidCredentials()
	}
	if err := keysize.CheckPrivate([]byte(header.PrivateKey)); err != nil {
		return "", invalidCredentials().Because(err)
	}
	switch kind := google.CredentialsType(header.Type); kind {
	case google.ServiceAccount, google.AuthorizedUser:
		return kind, nil
	case google.ExternalAccount, google.ExternalAccountAuthorizedUser, google.ImpersonatedServiceAccount,
		google.GDCHServiceAccount:
		return "", invalid("credentials of type %s are not allowed in a Secret", kind).
			WithHint("Use workload identity with spec.serviceAccountName")
	}
	return "", invalidCredentials()
}

// tokenFault returns the fault of a failed token request. The original error may contain a URL and credentials.
func tokenFault(err error) error {
	f := fault.New(meta.AuthenticationFailedReason, "cannot get a Google Cloud token")
	var rejected *oauth2.RetrieveError
	var urlErr *url.Error
	switch {
	case errors.As(err, &rejected):
		status := 0
		if rejected.Response != nil {
			status = rejected.Response.StatusCode
		}
		if rejected.ErrorCode != "" {
			f = f.Because(errors.New(excerpt.Chars(joinLines(rejected.ErrorCode+" "+rejected.ErrorDescription),
				maxErrorText)))
		}
		if status >= 400 && status < 500 && status != http.StatusTooManyRequests {
			return f.WithHint("Renew the key of the service account in the Secret of the Provider").Final()
		}
		return f.WithHint("The event will be retried")
	case errors.As(err, &urlErr):
		return f.Because(urlErr.Err)
	}
	return f.WithHint("Check the key of the service account in the Secret of the Provider").Final()
}
