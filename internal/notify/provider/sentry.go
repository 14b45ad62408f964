package provider

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// sentry sends envelopes (https://develop.sentry.dev/sdk/data-model/envelopes/): an event for a failure, a
// transaction for everything else.
type sentry struct {
	client      *client
	to          *url.URL
	key         string
	environment string
}

func newSentry(o Options) (Provider, error) {
	d, err := parseDSN(o.Address)
	if err != nil {
		return nil, err
	}
	o.Address = d.endpoint
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &sentry{client: c, to: c.address, key: d.key, environment: o.Channel}, nil
}

// dsn is a parsed DSN of a Sentry project.
type dsn struct{ endpoint, key string }

var (
	sentryKey     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)
	sentryProject = regexp.MustCompile(`^[0-9A-Za-z_-]{1,50}$`)
)

// parseDSN parses SCHEME://KEY[:SECRET]@HOST[/PATH]/PROJECT
// (https://docs.sentry.io/concepts/key-terms/dsn-explainer/). The error does not contain it.
func parseDSN(address string) (dsn, error) {
	malformed := invalid("the address of the Provider is not a Sentry DSN").
		WithHint("Copy the DSN, https://KEY@HOST/PROJECT, from the Client Keys of the project to the key address " +
			"of the Secret")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		!sentryKey.MatchString(u.User.Username()) || u.RawQuery != "" {
		return dsn{}, malformed
	}
	path := strings.Trim(u.Path, "/")
	at := strings.LastIndexByte(path, '/') + 1
	if !sentryProject.MatchString(path[at:]) {
		return dsn{}, malformed
	}
	endpoint := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/" + path[:at]}).
		JoinPath("api", path[at:], "envelope/")
	return dsn{endpoint.String(), u.User.Username()}, nil
}

// sentryEvent is https://develop.sentry.dev/sdk/data-model/event-payloads/.
type sentryEvent struct {
	EventID     string            `json:"event_id"` // Sentry ignores duplicates
	Type        string            `json:"type,omitempty"`
	Timestamp   time.Time         `json:"timestamp"`
	Start       *time.Time        `json:"start_timestamp,omitempty"`
	Platform    string            `json:"platform"`
	Level       string            `json:"level"`
	Logger      string            `json:"logger,omitempty"`
	ServerName  string            `json:"server_name,omitempty"`
	Environment string            `json:"environment,omitempty"`
	Transaction string            `json:"transaction"`
	Message     *sentryMessage    `json:"message,omitempty"`
	Tags        map[string]string `json:"tags"`
	Extra       map[string]string `json:"extra,omitempty"`
	Contexts    map[string]any    `json:"contexts,omitempty"`
	Spans       []sentrySpan      `json:"spans,omitempty"`
}

type sentryMessage struct {
	Formatted string `json:"formatted"` // 8,192 characters
}

type sentryTrace struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
	Op      string `json:"op"`
	Status  string `json:"status"`
}

type sentrySpan struct {
	sentryTrace
	Parent      string            `json:"parent_span_id"`
	Description string            `json:"description"`
	Start       time.Time         `json:"start_timestamp"`
	Timestamp   time.Time         `json:"timestamp"`
	Tags        map[string]string `json:"tags"`
}

// Send implements [Provider].
func (p *sentry) Send(ctx context.Context, e event.Event) error {
	m, sum := MessageOf(e), fingerprint(e)
	at := m.Time.UTC()
	s := sentryEvent{
		EventID: hex.EncodeToString(sum[:16]), Timestamp: at, Platform: "other", Level: m.Severity(), Logger: m.From,
		ServerName: singleLine(e.ReportingInstance), Environment: p.environment, Transaction: m.Object,
		Tags: objectTags(e),
	}
	metadata := details(e, event.MaxMetadata, maxField)
	item := "event"
	if m.Failed {
		s.Message, s.Extra = &sentryMessage{plainText(m)}, metadata
	} else {
		item = "transaction"
		trace := sentryTrace{TraceID: hex.EncodeToString(sum[16:]), SpanID: hex.EncodeToString(sum[:8]),
			Op: "reconcile", Status: "ok"}
		s.Type, s.Start, s.Contexts = item, &at, map[string]any{"trace": trace}
		span := sentrySpan{sentryTrace: trace, Parent: trace.SpanID, Description: plainText(m), Start: at,
			Timestamp: at, Tags: maps.Clone(metadata)}
		span.SpanID, span.Op = hex.EncodeToString(sum[8:16]), m.Reason
		s.Spans = []sentrySpan{span}
	}
	body, err := envelope(s.EventID, item, s)
	if err != nil {
		return err
	}
	_, err = p.client.send(ctx, http.MethodPost, p.to, body, "Content-Type", "application/x-sentry-envelope",
		"X-Sentry-Auth", "Sentry sentry_version=7, sentry_client=sluice/1.0, sentry_key="+p.key)
	return err
}

// envelope returns an envelope with one item.
func envelope(id, item string, content any) ([]byte, error) {
	payload, err := json.Marshal(content)
	if err != nil {
		return nil, fault.New(SendFailed, "cannot encode the event as JSON").Because(err).Final()
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"event_id\":%q}\n{\"type\":%q,\"length\":%d}\n%s\n", id, item, len(payload), payload)
	return b.Bytes(), nil
}
