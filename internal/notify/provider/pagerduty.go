package provider

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// pagerDuty triggers and resolves incidents, and sends change events, with the Events API v2:
// https://developer.pagerduty.com/docs/events-api-v2-overview.
type pagerDuty struct {
	client *client
	base   *url.URL
	key    string
}

func newPagerDuty(o Options) (Provider, error) {
	if o.Channel == "" {
		return nil, invalid("the Provider has no channel").
			WithHint("Set spec.channel to the integration key of the service in PagerDuty")
	}
	c, err := newClient(o, "https://events.pagerduty.com")
	if err != nil {
		return nil, err
	}
	base := *c.address // the full URL of an integration is accepted
	base.Path, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimSuffix(base.Path, "/"), "/v2/enqueue"),
		"/integration/")
	base.RawPath, base.RawQuery = "", ""
	return &pagerDuty{client: c, base: &base, key: o.Channel}, nil
}

// Send implements [Provider]. An info event resolves the incident of its object and is sent as a change event.
func (p *pagerDuty) Send(ctx context.Context, e event.Event) error {
	if e.Reason == meta.ProgressingReason {
		return nil // neither a failure nor a success
	}
	m := MessageOf(e)
	custom := object{"message": m.Text, "reason": m.Reason}
	if metadata := details(e, event.MaxMetadata, maxField); len(metadata) > 0 {
		custom["metadata"] = metadata
	}
	custom.setText("hint", m.Hint)
	payload := object{"summary": excerpt.Chars(m.Title()+": "+joinLines(m.Text), 1024), "source": m.Object,
		"timestamp": m.Time.UTC().Format(time.RFC3339), "custom_details": custom}
	body := object{"routing_key": p.key, "payload": payload}
	if m.RevisionURL != "" {
		body["links"] = []object{{"href": m.RevisionURL, "text": m.Revision}}
	}
	if m.Failed {
		body["event_action"], body["dedup_key"], body["client"] = "trigger", objectKey(e), "Sluice"
		payload["severity"] = "error"
		payload.setText("component", e.InvolvedObject.Name)
		payload.setText("group", e.InvolvedObject.Namespace)
		payload.setText("class", m.Reason)
		_, err := p.client.postJSON(ctx, p.base.JoinPath("v2/enqueue"), body)
		return err
	}
	if reportsSuccess(e) {
		resolve := object{"routing_key": p.key, "event_action": "resolve", "dedup_key": objectKey(e)}
		if _, err := p.client.postJSON(ctx, p.base.JoinPath("v2/enqueue"), resolve); err != nil {
			return err
		}
	}
	a, err := p.client.postJSON(ctx, p.base.JoinPath("v2/change/enqueue"), body)
	if a.status == http.StatusBadRequest {
		return nil // event orchestrations reject change events; the incident is resolved
	}
	return err
}
