// Package provider sends events to external services. Each Provider type sends one event to one service in one
// attempt. The package does not access the cluster, keeps no state, and never exposes credentials; the address of
// a webhook counts as a credential.
package provider

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Reasons of the faults of this package.
const (
	ValidationFailed = "ValidationFailed" // the Provider or its Secret is not valid
	TokenNotFound    = "TokenNotFound"    // the Secret lacks the key that the type needs
	SendFailed       = "SendFailed"       // the service did not accept the event
)

// Options are the settings of a Provider and its Secrets.
type Options struct {
	Type, Address, Channel, Username string
	// Secret is the data of spec.secretRef: address, token, username, password. Its address overrides Address.
	Secret       map[string][]byte
	Headers      http.Header       // added to every request
	TLS          auth.TLS          // for types that do not use HTTP; Transport includes it
	Transport    http.RoundTripper // from egress, with limits, proxy, TLS and address checks
	Dial         Dial              // from egress, for types that do not use HTTP
	Identity     Identity          // workload identity; may be nil
	CommitStatus string            // spec.commitStatusExpr
	Object       map[string]any    // the Provider, for spec.commitStatusExpr
	UID          string            // of the Provider
	Clock        clock.PassiveClock
}

// Dial is like net.Dialer.DialContext, for allowed addresses only.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Identity returns tokens of the workload identity of a Provider's service account.
type Identity interface {
	// Token returns a bearer token of a cloud (azure, gcp) for a scope. The error is a fault.
	Token(ctx context.Context, cloud, scope string) (string, error)
}

// Provider sends events to one service. Its methods are safe for concurrent use.
type Provider interface {
	// Send makes one attempt, which ends with ctx. The error is a fault. It is Terminal if a retry cannot help;
	// RetryAfter is the wait that the service requested. It contains no credential and no URL, only its host.
	// Types that create incidents or report commits return nil without a request for events that do not apply.
	Send(ctx context.Context, e event.Event) error
}

// types are the constructors by type.
var types = map[string]func(Options) (Provider, error){
	// chats
	"discord":    newDiscord,
	"googlechat": newGoogleChat,
	"lark":       newLark,
	"mastodon":   newMastodon,
	"matrix":     newMatrix,
	"msteams":    newTeams,
	"rocket":     newRocket,
	"slack":      newSlack,
	"telegram":   newTelegram,
	"webex":      newWebex,
	"zoom":       newZoom,
	"zulip":      newZulip,

	// incidents, metrics, queues and traces
	"alertmanager":  newAlertmanager,
	"azureeventhub": newEventHub,
	"datadog":       newDatadog,
	"generic":       newGeneric,
	"generic-hmac":  newGenericHMAC,
	"googlepubsub":  newPubSub,
	"grafana":       newGrafana,
	"incident.io":   newIncidentIO,
	"nats":          newNATS,
	"opsgenie":      newOpsgenie,
	"otel":          newOTel,
	"pagerduty":     newPagerDuty,
	"sentry":        newSentry,

	// git hosts
	"azuredevops":               statusAt(githost.AzureDevOps),
	"bitbucket":                 statusAt(githost.Bitbucket),
	"bitbucketserver":           statusAt(githost.BitbucketServer),
	"gitea":                     statusAt(githost.Gitea),
	"giteapullrequestcomment":   commentAt(githost.Gitea),
	"github":                    statusAt(githost.GitHub),
	"githubdispatch":            newGitHubDispatch,
	"githubpullrequestcomment":  commentAt(githost.GitHub),
	"gitlab":                    statusAt(githost.GitLab),
	"gitlabmergerequestcomment": commentAt(githost.GitLab),
}

// New returns the Provider of a type. The error is a Terminal fault: the Provider or its Secret must be changed.
func New(o Options) (Provider, error) {
	create, known := types[o.Type]
	if !known {
		return nil, invalid("the Provider has the unknown type %.40q", o.Type)
	}
	o.Address = cmp.Or(o.secret("address"), strings.TrimSpace(o.Address))
	o.Username = cmp.Or(o.secret("username"), o.Username)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	for name, values := range o.Headers {
		if !httpguts.ValidHeaderFieldName(name) ||
			slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			return nil, invalid("the header %.60q is not valid", name).
				WithHint("Correct the key headers of the Secret: names consist of letters, digits and dashes, values " +
					"are one line")
		}
	}
	p, err := create(o)
	if err != nil {
		return nil, err
	}
	return redacting{p, newRedactor(o)}, nil
}

// secret returns a value of the Secret without surrounding white space.
func (o Options) secret(key string) string { return trimmed(o.Secret[key]) }

// token returns the key token of the Secret. The description of the token is used in the error.
func (o Options) token(description string) (string, error) {
	t := o.secret("token")
	switch {
	case t == "":
		return "", fault.New(TokenNotFound, "the Provider has no token").
			WithHint("Store %s in the key token of the Secret in spec.secretRef", description).Final()
	case !httpguts.ValidHeaderFieldValue(t):
		return "", invalid("the token contains a line break or another invalid character").
			WithHint("Correct the key token of the Secret")
	}
	return t, nil
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(ValidationFailed, format, args...).Final()
}

// redacting removes the credentials of a Provider from its errors, as the last line of defence.
type redacting struct {
	Provider
	redactor redactor
}

func (c redacting) Send(ctx context.Context, e event.Event) error {
	return c.redactor.fault(c.Provider.Send(ctx, e))
}
