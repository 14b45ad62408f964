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

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// alertmanager fires alerts with the API v2: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
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

// annotationKeys are metadata keys that become annotations: as labels, each text would create a separate alert.
var annotationKeys = []string{event.Summary, event.CommitAuthor, event.CommitMessage, event.Note}

// Send implements [Provider].
func (p *alertmanager) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	a := alertmanagerAlert{Labels: map[string]string{}, Annotations: map[string]string{"message": m.Text},
		StartsAt: e.Timestamp.UTC(), GeneratorURL: m.RevisionURL}
	for key, value := range details(e, event.MaxMetadata, maxField) {
		if slices.Contains(annotationKeys, key) {
			a.Annotations[labelName(key)] = value
		} else {
			a.Labels[labelName(key)] = value
		}
	}
	if m.Hint != "" {
		a.Annotations["hint"] = m.Hint
	}
	maps.Copy(a.Labels, objectTags(e))
	a.Labels["alertname"] = "Flux" + a.Labels["kind"] + a.Labels["reason"] // documented, used in routes
	a.Labels["reportingcontroller"] = m.From
	maps.DeleteFunc(a.Labels, func(_, value string) bool { return value == "" })
	alerts := []alertmanagerAlert{a}
	if reportsSuccess(e) {
		resolved, err := p.resolved(ctx, e)
		if err != nil {
			return err
		}
		alerts = append(alerts, resolved...)
	}
	_, err := p.client.postJSON(ctx, p.client.address, alerts, p.login...)
	return err
}

// resolved returns the firing alerts of the object with an end time. Alertmanager identifies an alert by all its
// labels, so the labels with which it was fired must be read first.
func (p *alertmanager) resolved(ctx context.Context, e event.Event) ([]alertmanagerAlert, error) {
	to := *p.client.address
	query := to.Query()
	labels := objectTags(e)
	for _, name := range []string{"kind", "name", "namespace"} {
		query.Add("filter", fmt.Sprintf("%s=%q", name, labels[name]))
	}
	query.Add("filter", fmt.Sprintf("severity=%q", event.Error))
	to.RawQuery = query.Encode()
	resp, err := p.client.send(ctx, http.MethodGet, &to, nil, p.login...)
	var firing []alertmanagerAlert
	switch f := fault.As(err); {
	case f != nil && !f.Terminal:
		return nil, err
	case f != nil || json.Unmarshal(resp.body, &firing) != nil:
		return nil, nil // reading may be forbidden; the alerts then end after resolve_timeout
	}
	end := e.Timestamp.UTC()
	var resolved []alertmanagerAlert
	for _, a := range firing {
		if a.Labels["severity"] == event.Error && strings.HasPrefix(a.Labels["alertname"], "Flux") &&
			a.StartsAt.Before(end) {
			resolved = append(resolved, alertmanagerAlert{Labels: a.Labels, Annotations: a.Annotations,
				StartsAt: a.StartsAt,
				EndsAt:   &end})
		}
	}
	return resolved, nil
}

// labelName returns a key with only the characters that every Prometheus version accepts in label names.
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
