package provider

import (
	"context"
	"maps"

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

// Send implements [Provider].
func (p *incidentIO) Send(ctx context.Context, e event.Event) error {
	if e.Severity != event.Error && !reportsSuccess(e) || e.Reason == meta.ProgressingReason {
		return nil // neither a failure nor a success
	}
	m := MessageOf(e)
	metadata := details(e, event.MaxMetadata, maxField)
	maps.Copy(metadata, objectTags(e))
	body := object{"title": m.Title(), "description": plainText(m), "deduplication_key": objectKey(e),
		"status": "resolved", "metadata": metadata}
	body.setText("source_url", m.RevisionURL)
	if m.Failed {
		body["status"] = "firing"
	}
	_, err := p.client.postJSON(ctx, p.client.address, body, "Authorization", "Bearer "+p.token)
	return err
}
