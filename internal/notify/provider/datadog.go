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

type datadogEvent struct {
	Title          string   `json:"title"` // 100 characters
	Text           string   `json:"text"`  // 4,000 characters
	AlertType      string   `json:"alert_type"`
	AggregationKey string   `json:"aggregation_key"` // 100 characters
	DateHappened   int64    `json:"date_happened"`
	SourceTypeName string   `json:"source_type_name"`
	Tags           []string `json:"tags"` // 200 characters each
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
	_, err := p.client.postJSON(ctx, p.client.url("api/v1/events"), datadogEvent{
		Title: excerpt.Chars(m.Title(), 100), Text: excerpt.Chars(plainText(m), 4000), AlertType: m.Severity(),
		// the integration name in Datadog
		AggregationKey: objectKey(e), DateHappened: m.Time.Unix(), Tags: tags, SourceTypeName: "fluxcd",
	}, "DD-API-KEY", p.key)
	return err
}
