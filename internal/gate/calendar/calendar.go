// Package calendar evaluates schedules of recurring windows: the state at a time, and when it changes next.
// An evaluation takes microseconds for any span of time, as it does not step through minutes.
package calendar

import (
	"errors"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // embeds the time zone database
)

// Bounds of the duration of a window.
const (
	MinDuration = time.Minute
	MaxDuration = 366 * day

	day = 24 * time.Hour
	// maxSteps bounds the search for the next change, as adjacent windows may never end.
	maxSteps = 1000
)

// State is the state of a calendar at a time.
type State int

// States in ascending precedence: if several windows are active, Closed applies.
const (
	None   State = iota // no window is active
	Opened              // an opening window is active
	Closed              // a closing window is active
)

// Entry is a recurring window.
type Entry struct {
	Name     string
	Opens    bool     // the window opens the gate; otherwise it closes the gate
	Cron     string   // starts: five fields, or a descriptor such as @daily
	Dates    []string // days instead of Cron: 2006-01-02, or 01-02 for every year
	Duration time.Duration
	TimeZone string // IANA name; empty: UTC
}

// Calendar is a parsed schedule. It is immutable.
type Calendar struct{ windows []window }

// New parses entries. The error names the invalid entry.
func New(entries []Entry) (*Calendar, error) {
	c := &Calendar{}
	for i, e := range entries {
		w, err := newWindow(e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", label(e.Name, i), err)
		}
		w.name = e.Name
		c.windows = append(c.windows, w)
	}
	return c, nil
}

func label(name string, i int) string {
	if name == "" {
		return fmt.Sprintf("schedule[%d]", i)
	}
	return fmt.Sprintf("schedule[%d] (%s)", i, name)
}

func newWindow(e Entry) (window, error) {
	w := window{state: Closed, days: int(e.Duration / day), duration: e.Duration % day}
	if e.Opens {
		w.state = Opened
	}
	if e.Duration < MinDuration || e.Duration > MaxDuration {
		return w, fmt.Errorf("duration %s is not between %s and %s", e.Duration, MinDuration, MaxDuration)
	}
	zone, err := zone(e.TimeZone)
	if err != nil {
		return w, err
	}
	w.zone = zone
	if (e.Cron == "") == (len(e.Dates) == 0) {
		return w, errors.New("set either cron or dates")
	}
	if e.Cron != "" {
		s, err := parseCron(e.Cron)
		w.starts = s
		return w, err
	}
	w.starts, err = parseDates(e.Dates)
	return w, err
}

func zone(name string) (*time.Location, error) {
	if name == "Local" { // the zone of this machine
		return nil, errors.New("time zone \"Local\" is unknown")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q is unknown", name)
	}
	return zone, nil
}

// Opens reports whether the calendar has opening windows.
func (c *Calendar) Opens() bool {
	return slices.ContainsFunc(c.windows, func(w window) bool { return w.state == Opened })
}

// At returns the state at a time, and the name of the entry that determines it.
func (c *Calendar) At(t time.Time) (State, string) {
	state, name := None, ""
	for _, w := range c.windows {
		if w.state > state && w.end(t).After(t) {
			state, name = w.state, w.name
		}
	}
	return state, name
}

// Next returns the first time after t at which the state changes. It is zero if the state does not change within 1,000
// windows.
func (c *Calendar) Next(t time.Time) time.Time {
	spans := make([]*span, len(c.windows))
	for i, w := range c.windows {
		spans[i] = &span{window: w, ends: w.end(t), begins: w.next(t)}
	}
	current := stateAt(spans, t)
	for range maxSteps {
		t = boundary(spans, current)
		if t.IsZero() {
			return t
		}
		for _, s := range spans {
			s.to(t)
		}
		if stateAt(spans, t) != current {
			return t
		}
	}
	return time.Time{}
}

// stateAt returns the state at a time to which the spans were moved.
func stateAt(spans []*span, t time.Time) State {
	state := None
	for _, s := range spans {
		if s.state > state && s.ends.After(t) {
			state = s.state
		}
	}
	return state
}

// boundary returns the first time at which the state of the spans may change: when a window of higher precedence
// begins, or when all windows of this state have ended.
func boundary(spans []*span, state State) time.Time {
	var begins, ends time.Time
	for _, s := range spans {
		switch {
		case s.state > state:
			if begins.IsZero() || !s.begins.IsZero() && s.begins.Before(begins) {
				begins = s.begins
			}
		case s.state == state && s.ends.After(ends):
			ends = s.ends
		}
	}
	if ends.IsZero() || !begins.IsZero() && begins.Before(ends) {
		return begins
	}
	return ends
}
