package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

// Case reads what a gate itself says: all that a verdict depends on but approvals and checks. The error is a
// final fault.
func Case(g *gatingv1.Gate) (verdict.Case, error) {
	c := verdict.Case{Opened: g.Spec.Default == gatingv1.Opened, Overridable: g.IsOverridable()}
	if w := g.Spec.Window; w != nil {
		if w.Duration <= 0 || w.Duration > verdict.MaxWindow {
			return c, fault.New(gatingv1.InvalidWindowReason, "spec.window is %s", w.Duration).
				WithHint("Write it as 1h, and no longer than %s", verdict.MaxWindow).Final()
		}
		c.Window = w.Duration
	}
	var entries []calendar.Entry
	for _, e := range g.Spec.Schedule {
		entry := calendar.Entry{
			Name: e.Name, Opens: e.State == gatingv1.Opened, Cron: e.Cron, Dates: e.Dates, TimeZone: e.TimeZone,
			Duration: 24 * time.Hour,
		}
		if e.Duration != nil {
			entry.Duration = e.Duration.Duration
		}
		entries = append(entries, entry)
	}
	var err error
	if c.Calendar, err = calendar.New(entries); err != nil {
		return c, fault.New(gatingv1.InvalidScheduleReason, "spec.schedule cannot be followed").Because(err).Final()
	}
	if c.Requests, err = verdict.ReadRequests(g.Annotations); err != nil {
		return c, err
	}
	for verb, r := range map[string]*verdict.Request{
		gatingv1.OpenPrefix: c.Requests.Open, gatingv1.ClosePrefix: c.Requests.Close,
		gatingv1.OverridePrefix: c.Requests.Override,
	} {
		if r != nil {
			r.From = writer(g, verb+gatingv1.RequestedAtSuffix)
		}
	}
	if a := g.Spec.Approvals; a != nil {
		c.Rule = &verdict.Rule{Required: int(a.Required), Users: a.Users, Groups: a.Groups, ValidFor: c.Window}
		if a.ValidFor != nil {
			c.Rule.ValidFor = a.ValidFor.Duration
		}
	}
	return c, nil
}

// writer returns the name that a client gave itself when it wrote an annotation (metadata.managedFields).
func writer(g *gatingv1.Gate, annotation string) string {
	for _, entry := range g.ManagedFields {
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || !bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(annotation)) {
			continue
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue
		}
		if _, ok := fields.Metadata.Annotations["f:"+annotation]; ok {
			return entry.Manager
		}
	}
	return ""
}

// vouched takes out of a case what names somebody whom the API server does not vouch for. The error says that
// it does not.
func (s *Gate) vouched(ctx context.Context, g *gatingv1.Gate, c *verdict.Case) error {
	named := slices.ContainsFunc([]*verdict.Request{c.Requests.Open, c.Requests.Close, c.Requests.Override},
		func(r *verdict.Request) bool {
			return r != nil && r.By != ""
		})
	if !named {
		return nil
	}
	err := s.Vouch.Requests(ctx, g.Namespace)
	if err == nil {
		return nil
	}
	for _, r := range []*verdict.Request{c.Requests.Open, c.Requests.Close} {
		if r != nil {
			r.By = ""
		}
	}
	if c.Requests.Override == nil {
		return nil
	}
	c.Requests.Override = nil
	return err
}
