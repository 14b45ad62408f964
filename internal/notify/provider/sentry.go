package provider

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

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

// Send implements [Provider]: https://develop.sentry.dev/sdk/data-model/event-payloads/.
func (p *sentry) Send(ctx context.Context, e event.Event) error {
	m, sum := MessageOf(e), fingerprint(e)
	id, at := hex.EncodeToString(sum[:16]), m.Time.UTC()
	s := object{"event_id": id, "timestamp": at, "platform": "other", "level": m.Severity(), "transaction": m.Object,
		"tags": objectTags(e)} // Sentry ignores events with the ID of an earlier one
	s.setText("logger", m.From)
	s.setText("server_name", singleLine(e.ReportingInstance))
	s.setText("environment", p.environment)
	metadata := details(e, event.MaxMetadata, maxField)
	item := "event"
	if m.Failed {
		s["message"] = object{"formatted": plainText(m)} // 8,192 characters
		if len(metadata) > 0 {
			s["extra"] = metadata
		}
	} else {
		item = "transaction"
		trace := object{"trace_id": hex.EncodeToString(sum[16:]), "span_id": hex.EncodeToString(sum[:8]),
			"op": "reconcile", "status": "ok"}
		s["type"], s["start_timestamp"], s["contexts"] = item, at, object{"trace": trace}
		s["spans"] = []object{{"trace_id": trace["trace_id"], "span_id": hex.EncodeToString(sum[8:16]), "op": m.Reason,
			"status": "ok", "parent_span_id": trace["span_id"], "description": plainText(m), "start_timestamp": at,
			"timestamp": at, "tags": metadata}}
	}
	body, err := envelope(id, item, s)
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
