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
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	pubSubHost  = "https://pubsub.googleapis.com"
	pubSubScope = "https://www.googleapis.com/auth/pubsub"

	maxAttributes = 100 // of a message of Pub/Sub
	maxCredential = 64 << 10
	tokenTime     = 30 * time.Second // for a token, of which a retry asks again
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
			WithHint("Set spec.address to it, such as shop-prod-123")
	}
	if !pubSubTopic.MatchString(o.Channel) {
		return nil, invalid("the channel of the Provider is not the ID of a Pub/Sub topic").
			WithHint("Set spec.channel to it, without the path of the project")
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
	o.Address, o.Headers = "", nil // the Secret's headers are attributes of the message
	c, err := newClient(o, pubSubHost)
	if err != nil {
		return nil, err
	}
	return &pubSub{c, c.at("v1/projects", project, "topics", url.PathEscape(topic)+":publish"), attributes, token}, nil
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
	_, err = p.client.postJSON(ctx, p.to, map[string]any{"messages": []pubSubMessage{{body, p.attributes}}},
		"Authorization", "Bearer "+token)
	return err
}

// attributesOf reads the key headers of the Secret, whose names keep their case here. The error tells nothing of it.
func attributesOf(b []byte) (map[string]string, error) {
	var all map[string]string
	if len(b) > maxCredential || yaml.UnmarshalStrict(b, &all) != nil || len(all) > maxAttributes {
		return nil, invalid("the key headers of the Secret is not a map of texts").
			WithHint("Write a line NAME: VALUE for each attribute, up to %d", maxAttributes)
	}
	return all, nil
}

// google returns what gives tokens for a scope: the JSON credentials in the Secret, else workload identity.
// The error is a Terminal fault.
func (o Options) google(scope string) (func(context.Context) (string, error), error) {
	raw := o.Secret["token"]
	if len(raw) == 0 {
		if o.Identity == nil {
			return nil, fault.New(TokenNotFound, "the Provider has no credentials for Google Cloud").
				WithHint("Put those of a service account in the key token of the Secret that spec.secretRef names, " +
					"or set spec.serviceAccountName").Final()
		}
		return func(ctx context.Context) (string, error) { return o.Identity.Token(ctx, auth.GCP, scope) }, nil
	}
	kind, err := credentialsType(raw)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: o.Transport, Timeout: tokenTime}
	found, err := google.CredentialsFromJSONWithType(context.WithValue(context.Background(), oauth2.HTTPClient, client),
		raw, kind, scope)
	if err != nil {
		return nil, notCredentials() // the error may tell parts of them
	}
	return func(context.Context) (string, error) {
		token, err := found.TokenSource.Token()
		if err != nil {
			return "", noToken(err)
		}
		return token.AccessToken, nil
	}, nil
}

func notCredentials() *fault.Fault {
	return invalid("the key token of the Secret holds no credentials of Google Cloud").
		WithHint("Put the JSON of a service account's key in it")
}

// credentialsType tells what kind of credentials a file holds. Those that tell where else to look, at files,
// URLs and programs, are refused.
func credentialsType(raw []byte) (google.CredentialsType, error) {
	var says struct {
		Type string `json:"type"`
	}
	if len(raw) > maxCredential || json.Unmarshal(raw, &says) != nil {
		return "", notCredentials()
	}
	switch kind := google.CredentialsType(says.Type); kind {
	case google.ServiceAccount, google.AuthorizedUser:
		return kind, nil
	case google.ExternalAccount, google.ExternalAccountAuthorizedUser, google.ImpersonatedServiceAccount,
		google.GDCHServiceAccount:
		return "", invalid("credentials of the type %s are not taken from a Secret", kind).
			WithHint("Use workload identity: spec.serviceAccountName")
	}
	return "", notCredentials()
}

// noToken makes a fault of a failed exchange. Its own text may tell a URL, and what was sent.
func noToken(err error) error {
	f := fault.New(meta.AuthenticationFailedReason, "Google Cloud gave no token")
	var refused *oauth2.RetrieveError
	var of *url.Error
	switch {
	case errors.As(err, &refused):
		status := 0
		if refused.Response != nil {
			status = refused.Response.StatusCode
		}
		if refused.ErrorCode != "" {
			f = f.Because(errors.New(excerpt.Chars(oneLine(refused.ErrorCode+" "+refused.ErrorDescription), maxWords)))
		}
		if status >= 400 && status < 500 && status != http.StatusTooManyRequests {
			return f.WithHint("Renew the key of the service account in the Secret of the Provider").Final()
		}
		return f.WithHint("It is tried again later")
	case errors.As(err, &of):
		return f.Because(of.Err)
	}
	return f.WithHint("Check the key of the service account in the Secret of the Provider").Final()
}
