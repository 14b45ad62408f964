// Package calendar tells when a schedule of windows is in force, and when that changes. A look at it costs
// microseconds however far it spans: nothing is counted minute by minute.
package calendar

import (
	"errors"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // the binary brings the time zones along
)

// Bounds of what a calendar holds.
const (
	MinDuration = time.Minute
	MaxDuration = 366 * day

	day = 24 * time.Hour
	// maxSteps bounds the search for the next change, for windows that follow each other without an end.
	maxSteps = 1000
)

// State that a calendar has.
type State int

// States. Where several windows are in force, Closed wins.
const (
	None   State = iota // no window is in force
	Opened              // a window that opens is in force
	Closed              // a window that closes is in force
)

// Entry is a recurring window.
type Entry struct {
	Name     string
	Opens    bool     // else it closes
	Cron     string   // five fields, or @daily and the like; or
	Dates    []string // days, as 2006-01-02 or, for every year, 01-02
	Duration time.Duration
	TimeZone string // IANA name; UTC when empty
}

// Calendar is a readable schedule. It is safe for concurrent use.
type Calendar struct{ windows []window }

// New reads entries. The error names the one that cannot be followed, and says why.
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
		return w, errors.New("either cron or dates must be set")
	}
	if e.Cron != "" {
		s, err := parseCron(e.Cron)
		w.starts = []starts{s}
		return w, err
	}
	w.starts, err = parseDates(e.Dates)
	return w, err
}

func zone(name string) (*time.Location, error) {
	if name == "Local" { // would be that of the machine
		return nil, errors.New("time zone \"Local\" is unknown")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q is unknown", name)
	}
	return zone, nil
}

// Opens tells whether the calendar has windows that open.
func (c *Calendar) Opens() bool {
	return slices.ContainsFunc(c.windows, func(w window) bool { return w.state == Opened })
}

// At returns the state at a time, and the name of the entry that makes it so.
func (c *Calendar) At(t time.Time) (State, string) {
	state, name := None, ""
	for _, w := range c.windows {
		if w.state > state && w.end(t).After(t) {
			state, name = w.state, w.name
		}
	}
	return state, name
}

// Next returns the first time after t at which the state is another one; zero when that is further away than
// it is worth searching.
func (c *Calendar) Next(t time.Time) time.Time {
	was, _ := c.At(t)
	for range maxSteps {
		t = c.boundary(t, was)
		if t.IsZero() {
			return t
		}
		if is, _ := c.At(t); is != was {
			return t
		}
	}
	return time.Time{}
}

// boundary returns the first time after t at which the state may be another one: when a window begins that
// wins over it, or all windows that make it have ended.
func (c *Calendar) boundary(t time.Time, state State) time.Time {
	var begins, ends time.Time
	for _, w := range c.windows {
		switch {
		case w.state > state:
			if next := w.next(t); begins.IsZero() || !next.IsZero() && next.Before(begins) {
				begins = next
			}
		case w.state == state:
			if end := w.end(t); end.After(ends) {
				ends = end
			}
		}
	}
	if ends.IsZero() || !begins.IsZero() && begins.Before(ends) {
		return begins
	}
	return ends
}
