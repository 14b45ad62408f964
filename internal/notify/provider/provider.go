// Package provider sends events to the outside: each type of a Provider makes one try to send one event to one place.
// It knows no cluster, keeps nothing, and tells no credential; the address of a webhook is one.
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

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Reasons of the faults of this package.
const (
	ValidationFailed = "ValidationFailed" // what the Provider or its Secret says cannot work
	TokenNotFound    = "TokenNotFound"    // the Secret lacks the key that the type needs
	SendFailed       = "SendFailed"       // the host did not take the event
)

// Options is what a Provider and its Secrets say.
type Options struct {
	Type, Address, Channel, Username string
	// of spec.secretRef: address, token, username, password; its address goes before Address
	Secret       map[string][]byte
	Headers      http.Header       // added to every request
	TLS          auth.TLS          // for types that do not speak HTTP; it is in Transport as well
	Transport    http.RoundTripper // of egress: bounds, proxy, TLS and refusals are in it
	Dial         Dial              // of egress, for types that do not speak HTTP
	Identity     Identity          // nil unless the Provider has an identity of its workload
	CommitStatus string            // spec.commitStatusExpr
	Object       map[string]any    // the Provider, as spec.commitStatusExpr reads it
	UID          string            // of the Provider
	Clock        clock.PassiveClock
}

// Dial connects to where the process may, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Identity gets tokens by workload identity, as the service account of a Provider.
type Identity interface {
	// Token returns a bearer token of a cloud (azure, gcp) for a scope of it. The error is a fault.
	Token(ctx context.Context, cloud, scope string) (string, error)
}

// Provider sends events to one place.
type Provider interface {
	// Send makes one try. The error is a fault: Terminal if a retry does not help, and RetryAfter is how long
	// the host asks to wait. It holds no credential, and of a URL no more than the host.
	Send(ctx context.Context, e event.Event) error
}

// types makes a Provider of each type.
var types = map[string]func(Options) (Provider, error){
	// chats
	"discord":    newDiscord,
	"googlechat": newGoogleChat,
	"lark":       newLark,
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

// New returns the Provider of a type. The error is a Terminal fault: the Provider or its Secret has to change.
func New(o Options) (Provider, error) {
	create, known := types[o.Type]
	if !known {
		return nil, invalid("the type %.40q of the Provider is unknown", o.Type)
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
				WithHint("Correct the key headers of the Secret: names have letters, digits and dashes, values have " +
					"no line break")
		}
	}
	p, err := create(o)
	if err != nil {
		return nil, err
	}
	return careful{p, newRedactor(o)}, nil
}

// secret returns a value of the Secret without the end of line that files have.
func (o Options) secret(key string) string { return trimmed(o.Secret[key]) }

// token returns the token, without which a type can do nothing.
func (o Options) token(what string) (string, error) {
	t := o.secret("token")
	switch {
	case t == "":
		return "", fault.New(TokenNotFound, "the Provider has no token").
			WithHint("Put %s in the key token of the Secret that spec.secretRef names", what).Final()
	case !httpguts.ValidHeaderFieldValue(t):
		return "", invalid("the token has a line break or another character that no token has").
			WithHint("Correct the key token of the Secret")
	}
	return t, nil
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(ValidationFailed, format, args...).Final()
}

// careful is the last bound before what is told: no error leaves a Provider that holds a credential of it.
type careful struct {
	Provider
	redactor redactor
}

func (c careful) Send(ctx context.Context, e event.Event) error {
	return c.redactor.fault(c.Provider.Send(ctx, e))
}
