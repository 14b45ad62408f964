package ui

import (
	"context"
	"net/http"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of the calendar of all gates.
const (
	maxCalendarGates = 100
	maxCalendarDays  = 60
	defaultDays      = 14
	defaultBack      = 7
)

const day = 24 * time.Hour

// period is a time in which a gate is open, or closed.
type period struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Opened bool      `json:"opened"`
	Known  bool      `json:"known"` // whether the state is known; the history has an end
	Why    string    `json:"why,omitempty"`
	By     string    `json:"by,omitempty"`
}

// gateCalendar is the periods of one gate, in order and without gaps.
type gateCalendar struct {
	Gate    string   `json:"gate"` // ID
	Periods []period `json:"periods"`
	Error   string   `json:"error,omitempty"` // why the future cannot be computed
	More    bool     `json:"more"`            // the last period has changes that are not included
}

// gatesCalendar is the calendar of all gates.
type gatesCalendar struct {
	From    time.Time      `json:"from"`
	Now     time.Time      `json:"now"`
	To      time.Time      `json:"to"`
	Gates   []gateCalendar `json:"gates"`
	Omitted int            `json:"omitted"` // gates above the limit
}

// calendars returns when gates were and will be open, if nothing but time changes. Parameters: days and back.
func (s *Server) calendars(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := r.URL.Query()
	days, err := number(q.Get("days"), defaultDays, maxCalendarDays)
	if err != nil {
		return nil, err
	}
	back, err := number(q.Get("back"), defaultBack, maxCalendarDays)
	if err != nil {
		return nil, err
	}
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	items := s.Model.List(func(i *view.Item) bool { return i.Gate != nil && may(i) })
	now := s.Now().UTC()
	c := gatesCalendar{From: now.Add(-time.Duration(back) * day), Now: now, To: now.Add(time.Duration(days) * day),
		Gates: []gateCalendar{}, Omitted: max(0, len(items)-maxCalendarGates)}
	for _, i := range items[:min(len(items), maxCalendarGates)] {
		g := &gatingv1.Gate{}
		err := u.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Name}, g)
		switch {
		case client.IgnoreNotFound(err) != nil:
			c.Gates = append(c.Gates, gateCalendar{Gate: i.ID, Periods: []period{}, Error: explain(err)})
		case err == nil:
			c.Gates = append(c.Gates, calendarOf(i, g, c))
		}
	}
	return c, nil
}

// calendarOf returns the periods of a gate: from its history until now, then from its schedule.
func calendarOf(i *view.Item, g *gatingv1.Gate, c gatesCalendar) gateCalendar {
	result := gateCalendar{Gate: i.ID}
	p := period{From: c.From}
	begin := func(at time.Time, next period) {
		if next.From = p.From; next == p {
			return // nothing changes
		}
		if at.After(p.From) {
			p.To = at
			result.Periods = append(result.Periods, p)
			next.From = at
		}
		p = next
	}
	for _, h := range slices.Backward(g.Status.History) { // oldest first
		if h.At.Before(c.Now) {
			begin(h.At.Time, period{Opened: h.State == gatingv1.Opened, Known: true, Why: h.Message, By: h.By})
		}
	}
	begin(c.Now, period{Opened: i.Gate.Open, Known: true, Why: i.Gate.Why})
	next, more, err := forecast.Transitions(g, c.Now, c.To.Sub(c.Now), calendarRows)
	if err != nil {
		result.Error = "The calendar cannot be computed: " + err.Error()
		p.Known = false
	}
	for _, t := range next {
		begin(t.At, period{Opened: t.Opened, Known: true, Why: t.Why})
	}
	p.To, result.More = c.To, more
	result.Periods = append(result.Periods, p)
	return result
}
