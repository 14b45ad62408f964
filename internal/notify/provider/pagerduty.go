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

type pagerDutyEvent struct {
	RoutingKey  string            `json:"routing_key"`
	EventAction string            `json:"event_action,omitempty"`
	DedupKey    string            `json:"dedup_key,omitempty"` // 255 characters
	Client      string            `json:"client,omitempty"`
	Payload     *pagerDutyPayload `json:"payload,omitempty"`
	Links       []pagerDutyLink   `json:"links,omitempty"`
}

type pagerDutyPayload struct {
	Summary       string         `json:"summary"` // 1,024 characters
	Source        string         `json:"source"`
	Severity      string         `json:"severity,omitempty"` // of a trigger event
	Timestamp     string         `json:"timestamp"`
	Component     string         `json:"component,omitempty"`
	Group         string         `json:"group,omitempty"`
	Class         string         `json:"class,omitempty"`
	CustomDetails map[string]any `json:"custom_details,omitempty"`
}

type pagerDutyLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

// Send implements [Provider]. An info event resolves the incident of its object and is sent as a change event.
func (p *pagerDuty) Send(ctx context.Context, e event.Event) error {
	if e.Reason == meta.ProgressingReason {
		return nil // neither a failure nor a success
	}
	m := MessageOf(e)
	body := pagerDutyEvent{RoutingKey: p.key, Payload: &pagerDutyPayload{
		Summary: excerpt.Chars(m.Title()+": "+joinLines(m.Text), 1024), Source: m.Object,
		Timestamp:     m.Time.UTC().Format(time.RFC3339),
		CustomDetails: map[string]any{"message": m.Text, "reason": m.Reason},
	}}
	if metadata := details(e, event.MaxMetadata, maxField); len(metadata) > 0 {
		body.Payload.CustomDetails["metadata"] = metadata
	}
	if m.Hint != "" {
		body.Payload.CustomDetails["hint"] = m.Hint
	}
	if m.RevisionURL != "" {
		body.Links = []pagerDutyLink{{Href: m.RevisionURL, Text: m.Revision}}
	}
	if m.Failed {
		body.EventAction, body.DedupKey, body.Client = "trigger", objectKey(e), "Sluice"
		body.Payload.Severity, body.Payload.Component, body.Payload.Group, body.Payload.Class = "error",
			e.InvolvedObject.Name, e.InvolvedObject.Namespace, m.Reason
		_, err := p.client.postJSON(ctx, p.base.JoinPath("v2/enqueue"), body)
		return err
	}
	if reportsSuccess(e) {
		resolve := pagerDutyEvent{RoutingKey: p.key, EventAction: "resolve", DedupKey: objectKey(e)}
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
