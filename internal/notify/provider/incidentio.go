package provider

import (
	"context"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// incidentIO fires and resolves alerts of an HTTP alert source:
// https://docs.incident.io/api-reference/alert-events-v2/createhttp.
type incidentIO struct {
	client *client
	token  string
}

func newIncidentIO(o Options) (Provider, error) {
	token, err := o.token("the token of the alert source")
	if err != nil {
		return nil, err
	}
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &incidentIO{c, token}, nil
}

type incidentIOEvent struct {
	Title            string            `json:"title"`
	Description      string            `json:"description"`
	DeduplicationKey string            `json:"deduplication_key"`
	Status           string            `json:"status"`
	Metadata         map[string]string `json:"metadata"`
	SourceURL        string            `json:"source_url,omitempty"`
}

// Send implements [Provider].
func (p *incidentIO) Send(ctx context.Context, e event.Event) error {
	if e.Severity != event.Error && !reportsSuccess(e) || e.Reason == meta.ProgressingReason {
		return nil // neither a failure nor a success
	}
	m := MessageOf(e)
	body := incidentIOEvent{
		Title: m.Title(), Description: plainText(m), DeduplicationKey: objectKey(e), Status: "resolved",
		Metadata: details(e, event.MaxMetadata, maxField), SourceURL: m.RevisionURL,
	}
	for key, value := range objectTags(e) {
		body.Metadata[key] = value
	}
	if m.Failed {
		body.Status = "firing"
	}
	_, err := p.client.postJSON(ctx, p.client.address, body, "Authorization", "Bearer "+p.token)
	return err
}
