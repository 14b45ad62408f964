package provider

import (
	"context"
	"maps"
	"slices"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// datadog posts events: https://docs.datadoghq.com/api/latest/events/ (v1, for all kinds of events).
type datadog struct {
	client *client
	key    string
}

func newDatadog(o Options) (Provider, error) {
	key, err := o.token("a Datadog API key")
	if err != nil {
		return nil, err
	}
	c, err := newClient(o, "https://api.datadoghq.com")
	if err != nil {
		return nil, err
	}
	return &datadog{c, key}, nil
}

// Send implements [Provider].
func (p *datadog) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	metadata := details(e, event.MaxMetadata, maxField)
	for key, value := range objectTags(e) {
		if key != "severity" && value != "" { // AlertType has the severity
			metadata[key] = value
		}
	}
	var tags []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		tags = append(tags, excerpt.Chars(key+":"+metadata[key], 200))
	}
	_, err := p.client.postJSON(ctx, p.client.url("api/v1/events"), object{
		"title": excerpt.Chars(m.Title(), 100), "text": excerpt.Chars(plainText(m), 4000), "alert_type": m.Severity(),
		"aggregation_key": objectKey(e), "date_happened": m.Time.Unix(), "tags": tags,
		"source_type_name": "fluxcd", // the integration name in Datadog
	}, "DD-API-KEY", p.key)
	return err
}
