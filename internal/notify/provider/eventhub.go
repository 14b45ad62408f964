package provider

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	eventHubScope = "https://eventhubs.azure.net/.default"
	signatureTTL  = 10 * time.Minute // each request has its own signature
)

// eventHub sends the event: https://learn.microsoft.com/en-us/rest/api/eventhub/send-event.
type eventHub struct {
	client    *client
	to        *url.URL
	authorize func(context.Context) (string, error)
}

var (
	eventHubName      = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?$`)
	eventHubNamespace = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]$`)
	eventHubHost      = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]\.servicebus\.` +
		`(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)$`)
)

// newEventHub authenticates with a token in the Secret, a connection string, or workload identity.
func newEventHub(o Options) (Provider, error) {
	if o.secret("token") == "" && strings.Contains(strings.ToLower(o.Address), "endpoint=") {
		return newEventHubOfConnection(o)
	}
	host := o.Channel
	if eventHubNamespace.MatchString(host) {
		host += ".servicebus.windows.net"
	}
	if !eventHubHost.MatchString(host) { // tokens are sent to Azure only
		return nil, invalid("the channel of the Provider is not an Event Hubs namespace").
			WithHint("Set spec.channel to the name of the namespace, and spec.address to the name of the event hub")
	}
	var authorize func(context.Context) (string, error)
	switch token, err := o.token("an Event Hubs token"); {
	case err == nil:
		authorize = func(context.Context) (string, error) { return "Bearer " + token, nil }
	case o.secret("token") != "" || o.Identity == nil:
		return nil, err
	default:
		authorize = func(ctx context.Context) (string, error) {
			token, err := o.Identity.Token(ctx, auth.Azure, eventHubScope)
			return "Bearer " + token, err
		}
	}
	return o.eventHub(host, o.Address, authorize)
}

func newEventHubOfConnection(o Options) (Provider, error) {
	c, err := parseConnection(o.Address)
	if err != nil {
		return nil, err
	}
	hub := cmp.Or(c.hub, o.Channel)
	if hub == "" {
		return nil, invalid("the connection string does not name an event hub").
			WithHint("Add ;EntityPath=NAME to it, or set spec.channel to the name")
	}
	return o.eventHub(c.host, hub, func(context.Context) (string, error) {
		return cmp.Or(c.signature, c.sign("https://"+c.host+"/"+hub, o.Clock)), nil
	})
}

func (o Options) eventHub(host, hub string, authorize func(context.Context) (string, error)) (Provider, error) {
	if !eventHubName.MatchString(hub) {
		return nil, invalid("the name of the event hub is not valid").
			WithHint("Use letters, digits, dots, dashes and underscores")
	}
	o.Address = "https://" + host
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	to := c.url(hub, "messages")
	to.RawQuery = "timeout=60&api-version=2014-01"
	return &eventHub{client: c, to: to, authorize: authorize}, nil
}

// Send implements [Provider].
func (p *eventHub) Send(ctx context.Context, e event.Event) error {
	body, err := eventJSON(e)
	if err != nil {
		return err
	}
	login, err := p.authorize(ctx)
	if err != nil {
		return err
	}
	_, err = p.client.send(ctx, http.MethodPost, p.to, body, "Content-Type",
		"application/atom+xml;type=entry;charset=utf-8", "Authorization", login)
	return err
}

// connection is a parsed connection string.
type connection struct {
	host, hub    string
	keyName, key string
	signature    string // instead of a key
}

// parseConnection parses a connection string
// (https://learn.microsoft.com/en-us/azure/event-hubs/event-hubs-get-connection-string). The error does not contain it.
func parseConnection(s string) (connection, error) {
	var c connection
	endpoint := ""
	for part := range strings.SplitSeq(s, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(name) {
		case "endpoint":
			endpoint = value
		case "sharedaccesskeyname":
			c.keyName = value
		case "sharedaccesskey":
			c.key = value
		case "sharedaccesssignature":
			c.signature = value
		case "entitypath":
			c.hub = value
		}
	}
	u, err := url.Parse(endpoint)
	signed := c.keyName != "" && c.key != "" ||
		strings.HasPrefix(c.signature, "SharedAccessSignature ") && !strings.ContainsAny(c.signature, "\r\n")
	if err != nil || u.Scheme != "sb" || u.Hostname() == "" || u.User != nil || !signed {
		return connection{}, invalid("the address of the Provider is not an Event Hubs connection string").
			WithHint("Use the format Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;" +
				"SharedAccessKey=KEY;EntityPath=HUB")
	}
	c.host = u.Host
	return c, nil
}

// sign returns a shared access signature: https://learn.microsoft.com/en-us/rest/api/eventhub/generate-sas-token.
func (c connection) sign(resource string, clock clock.PassiveClock) string {
	expiry := itoa(int(clock.Now().Add(signatureTTL).Unix()))
	resource = url.QueryEscape(resource)
	mac := hmac.New(sha256.New, []byte(c.key))
	mac.Write([]byte(resource + "\n" + expiry))
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return "SharedAccessSignature sr=" + resource + "&sig=" + url.QueryEscape(signature) + "&se=" + expiry + "&skn=" +
		url.QueryEscape(c.keyName)
}
