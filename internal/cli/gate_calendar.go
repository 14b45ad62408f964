package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
)

// How much of a gate's calendar is printed.
const (
	calendarDays = 14
	calendarRows = 100
)

// scheduleWords are the words for what a schedule sets.
var scheduleWords = map[calendar.State]string{calendar.None: "-", calendar.Opened: "opens", calendar.Closed: "closes"}

// printCalendar prints when the schedule of a gate or the gate itself changes without any request.
func printCalendar(e *env, g *gatingv1.Gate, now time.Time) error {
	transitions, more, err := forecast.Transitions(g, now, calendarDays*24*time.Hour, calendarRows)
	if err != nil {
		fmt.Fprintf(e.Out, "Calendar: not available: %s\n", term.OneLine(err.Error()))
		return nil
	}
	if len(transitions) == 0 {
		fmt.Fprintf(e.Out, "Calendar: no scheduled change in the next %d days\n", calendarDays)
		return nil
	}
	zones := scheduleZones(g)
	header := []string{"  LOCAL"}
	for _, z := range zones {
		header = append(header, z.String())
	}
	rows := [][]term.Cell{term.Row(append(header, "SCHEDULE", "GATE", "WHY")...)}
	for _, t := range transitions {
		rows = append(rows, calendarRow(t, zones))
	}
	fmt.Fprintf(e.Out, "Calendar of %d days, with current approvals and checks:\n", calendarDays)
	if err := term.NewTable(e.Out).Print(rows...); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(e.Out, "  and more: only the first %d changes are shown\n", calendarRows)
	}
	return nil
}

func calendarRow(t forecast.Transition, zones []*time.Location) []term.Cell {
	texts := []string{"  " + formatMinute(t.At.Local())}
	for _, z := range zones {
		texts = append(texts, formatMinute(t.At.In(z)))
	}
	schedule := scheduleWords[t.Schedule]
	if t.Entry != "" {
		schedule += " '" + term.OneLine(t.Entry) + "'"
	}
	gate := term.Cell{Text: "closed", Colour: term.Red}
	if t.Opened {
		gate = term.Cell{Text: "opened", Colour: term.Green}
	}
	return append(term.Row(append(texts, schedule)...), gate, term.Cell{Text: term.OneLine(t.Why)})
}

// scheduleZones returns the time zones of a gate's schedule.
func scheduleZones(g *gatingv1.Gate) []*time.Location {
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

func formatMinute(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 MST") }
