package calendar

import (
	"time"
)

// The clock on the wall is what cron and dates are about. Its face is held as a time in UTC, in which every
// day has 24 hours, and is then mapped to the time at which the clock shows it.

// window is an entry that can be asked.
type window struct {
	state    State
	name     string
	starts   []starts
	zone     *time.Location
	days     int           // calendar days that it lasts,
	duration time.Duration // and this much on top
}

// starts are the clock faces at which a window begins.
type starts interface {
	// next returns the first after a face; zero when there is none.
	next(shown time.Time) time.Time
	// last returns the last at or before a face, and not before another one; zero when there is none.
	last(shown, since time.Time) time.Time
}

// end returns when the window that began last at or before t ends, which may be before t; zero when none
// began that could matter.
func (w window) end(t time.Time) time.Time {
	shown := latest(t, w.zone)
	var began time.Time
	for _, s := range w.starts {
		if f := s.last(shown, shown.AddDate(0, 0, -w.days-2).Add(-w.duration)); f.After(began) {
			began = f
		}
	}
	if began.IsZero() {
		return began
	}
	end := instant(began, w.zone)
	if w.days > 0 {
		end = instant(face(end.In(w.zone)).AddDate(0, 0, w.days), w.zone)
	}
	return end.Add(w.duration)
}

// next returns the first start after t; zero when there is none.
func (w window) next(t time.Time) time.Time {
	shown := latest(t, w.zone)
	var first time.Time
	for _, s := range w.starts {
		if f := s.next(shown); first.IsZero() || !f.IsZero() && f.Before(first) {
			first = f
		}
	}
	if first.IsZero() {
		return first
	}
	return instant(first, w.zone)
}

// face returns what a clock in t's zone shows, as a time in UTC.
func face(t time.Time) time.Time { return t.Add(offset(t)).UTC() }

// latest returns the latest face that a clock in the zone has shown by t: what it shows, or what it did
// before it was put back.
func latest(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	shown := face(t)
	if begin, _ := t.ZoneBounds(); !begin.IsZero() {
		if before := face(begin.Add(-1)); before.After(shown) {
			return before
		}
	}
	return shown
}

// instant returns when a clock in the zone shows a face: the first time of two, and the first one after it
// when it is skipped.
func instant(shown time.Time, zone *time.Location) time.Time {
	t := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(),
		shown.Nanosecond(), zone)
	begin, end := t.ZoneBounds()
	switch f := face(t); {
	case f.Equal(shown):
		if !begin.IsZero() {
			if before := t.Add(offset(t) - offset(begin.Add(-1))); before.Before(begin) && face(before).Equal(shown) {
				return before.UTC()
			}
		}
		return t.UTC()
	case f.After(shown): // skipped, where the zone begins that Go chose
		return begin.UTC()
	default: // skipped, where it ends
		return end.UTC()
	}
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
