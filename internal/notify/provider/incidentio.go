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
	if e.Severity != event.Error && !settled(e) || e.Reason == meta.ProgressingReason {
		return nil // says neither that it failed nor that it works
	}
	m := MessageOf(e)
	told := incidentIOEvent{
		Title: m.Title(), Description: described(m), DeduplicationKey: objectKey(e), Status: "resolved",
		Metadata: details(e, event.MaxMetadata, maxField), SourceURL: m.RevisionURL,
	}
	for key, value := range objectTags(e) {
		told.Metadata[key] = value
	}
	if m.Failed {
		told.Status = "firing"
	}
	_, err := p.client.postJSON(ctx, p.client.address, told, "Authorization", "Bearer "+p.token)
	return err
}
