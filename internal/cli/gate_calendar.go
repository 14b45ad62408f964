package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
)

// How much of a gate's calendar is shown.
const (
	calendarSpan = 14 * 24 * time.Hour
	calendarRows = 100
)

// scheduled are the words for what a calendar says.
var scheduled = map[calendar.State]string{calendar.None: "-", calendar.Opened: "opens", calendar.Closed: "closes"}

// showCalendar prints what the clock does to a gate: what its schedule says, and what the gate is then if
// nobody does anything.
func (a *app) showCalendar(g *gatingv1.Gate, now time.Time) error {
	c, err := gate.Case(g)
	if err != nil {
		fmt.Fprintf(a.out, "Calendar: none, %s\n", oneLine(err.Error()))
		return nil
	}
	turns, more := turns(g, c.Calendar, now)
	if len(turns) == 0 {
		fmt.Fprintf(a.out, "Calendar: nothing changes by the clock in %d days\n", calendarSpan/(24*time.Hour))
		return nil
	}
	zones := zones(g)
	head := []cell{{text: "  LOCAL"}}
	for _, z := range zones {
		head = append(head, cell{text: z.String()})
	}
	rows := [][]cell{append(head, cell{text: "SCHEDULE"}, cell{text: "GATE"}, cell{text: "WHY"})}
	for _, t := range turns {
		row := []cell{{text: "  " + day(t.Local())}}
		for _, z := range zones {
			row = append(row, cell{text: day(t.In(z))})
		}
		state, entry := c.Calendar.At(t)
		says := scheduled[state]
		if entry != "" {
			says += " '" + oneLine(entry) + "'"
		}
		then := gate.Foresee(g, t)
		is, colour := "closed", red
		if apimeta.IsStatusConditionTrue(then.Status.Conditions, gatingv1.OpenedCondition) {
			is, colour = "opened", green
		}
		rows = append(rows, append(row, cell{text: says}, cell{is, colour},
			cell{text: oneLine(then.Status.Why.Message)}))
	}
	fmt.Fprintf(a.out, "Calendar of %d days, with today's approvals and checks:\n", calendarSpan/(24*time.Hour))
	if err := (&table{out: a.out}).print(rows...); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.out, "  and more after that: %d changes are shown\n", calendarRows)
	}
	return nil
}

// turns lists when the schedule, or the gate for another reason, changes by the clock; more tells that there
// are others.
func turns(g *gatingv1.Gate, c *calendar.Calendar, now time.Time) (all []time.Time, more bool) {
	until := now.Add(calendarSpan)
	walk := func(next func(time.Time) time.Time) {
		t := next(now)
		for n := 0; !t.IsZero() && !t.After(until) && n <= calendarRows; n++ {
			all = append(all, t.UTC())
			t = next(t)
		}
	}
	walk(c.Next)
	walk(func(t time.Time) time.Time {
		if next := gate.Foresee(g, t).Status.NextTransition; next != nil {
			return next.At.Time
		}
		return time.Time{}
	})
	slices.SortFunc(all, time.Time.Compare)
	all = slices.CompactFunc(all, time.Time.Equal)
	return all[:min(len(all), calendarRows)], len(all) > calendarRows
}

// zones lists the time zones of a gate's schedule.
func zones(g *gatingv1.Gate) []*time.Location {
	var zones []*time.Location
	for _, e := range g.Spec.Schedule {
		zone, err := time.LoadLocation(cmp.Or(e.TimeZone, "UTC"))
		if err == nil && !slices.ContainsFunc(zones,
			func(z *time.Location) bool { return z.String() == zone.String() }) {
			zones = append(zones, zone)
		}
	}
	return zones
}

func day(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 MST") }
