package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// alertmanager fires alerts by the API v2: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
type alertmanager struct {
	service
}

func newAlertmanager(o Options) (Provider, error) {
	s, err := newService(o, "api/v2/alerts")
	if err != nil {
		return nil, err
	}
	return &alertmanager{s}, nil
}

type alertmanagerAlert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       *time.Time        `json:"endsAt,omitempty"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// prose are entries of the metadata that are told as annotations: as labels they would make an alert of each text.
var prose = []string{event.Summary, event.CommitAuthor, event.CommitMessage, event.Note}

// Send implements [Provider].
func (p *alertmanager) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	a := alertmanagerAlert{Labels: map[string]string{}, Annotations: map[string]string{"message": m.Text},
		StartsAt: e.Timestamp.UTC(), GeneratorURL: m.RevisionURL}
	for key, value := range details(e, event.MaxMetadata, maxField) {
		if slices.Contains(prose, key) {
			a.Annotations[labelName(key)] = value
		} else {
			a.Labels[labelName(key)] = value
		}
	}
	if m.Hint != "" {
		a.Annotations["hint"] = m.Hint
	}
	maps.Copy(a.Labels, objectTags(e))
	a.Labels["alertname"] = "Flux" + a.Labels["kind"] + a.Labels["reason"] // as routes of people match it
	a.Labels["reportingcontroller"] = m.From
	maps.DeleteFunc(a.Labels, func(_, value string) bool { return value == "" })
	alerts := []alertmanagerAlert{a}
	if settled(e) {
		over, err := p.over(ctx, e)
		if err != nil {
			return err
		}
		alerts = append(alerts, over...)
	}
	_, err := p.client.postJSON(ctx, p.client.address, alerts, p.login...)
	return err
}

// over are the failures of the object that Alertmanager knows, each with its end. An alert is told by all its
// labels, so who ends one must know the reason and the revision that it was fired with.
func (p *alertmanager) over(ctx context.Context, e event.Event) ([]alertmanagerAlert, error) {
	to := *p.client.address
	query := to.Query()
	labels := objectTags(e)
	for _, name := range []string{"kind", "name", "namespace"} {
		query.Add("filter", fmt.Sprintf("%s=%q", name, labels[name]))
	}
	query.Add("filter", fmt.Sprintf("severity=%q", event.Error))
	to.RawQuery = query.Encode()
	answer, err := p.client.send(ctx, http.MethodGet, &to, nil, p.login...)
	var firing []alertmanagerAlert
	switch f := fault.As(err); {
	case f != nil && !f.Terminal:
		return nil, err
	case f != nil || json.Unmarshal(answer.body, &firing) != nil:
		return nil, nil // who may write may not read; the alerts end when nobody repeats them
	}
	end := e.Timestamp.UTC()
	var over []alertmanagerAlert
	for _, a := range firing {
		if a.Labels["severity"] == event.Error && strings.HasPrefix(a.Labels["alertname"], "Flux") &&
			a.StartsAt.Before(end) {
			over = append(over, alertmanagerAlert{Labels: a.Labels, Annotations: a.Annotations, StartsAt: a.StartsAt,
				EndsAt: &end})
		}
	}
	return over, nil
}

// labelName is a key in the characters that every version of Prometheus takes.
func labelName(key string) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}
