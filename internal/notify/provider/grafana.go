package provider

import (
	"context"
	"maps"
	"slices"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// grafana creates an annotation for each event:
// https://grafana.com/docs/grafana/latest/developers/http_api/annotations/.
type grafana struct {
	service
}

func newGrafana(o Options) (Provider, error) {
	s, err := newService(o, "api/annotations")
	if err != nil {
		return nil, err
	}
	return &grafana{s}, nil
}

// Send implements [Provider].
func (p *grafana) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	labels := objectTags(e)
	tags := []string{"flux", m.From} // documented, used by dashboards
	metadata := details(e, event.MaxMetadata, maxField)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		tags = append(tags, key+": "+metadata[key])
	}
	for _, key := range []string{"kind", "name", "namespace"} {
		tags = append(tags, key+": "+labels[key])
	}
	_, err := p.client.postJSON(ctx, p.client.address, object{"time": m.Time.UnixMilli(), "tags": tags,
		"text": plainText(m)}, p.login...)
	return err
}
