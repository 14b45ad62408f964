package calendar

import "time"

// Cron expressions and dates are about local wall-clock time. A wall-clock time is represented as a time.Time
// in UTC with the same clock reading, so that every day has 24 hours. Function instant maps it to the time at
// which clocks show it.

// window is a parsed entry.
type window struct {
	state    State
	name     string
	starts   starts
	zone     *time.Location
	days     int           // duration in calendar days,
	duration time.Duration // plus this time
}

// starts is the wall-clock times at which a window begins.
type starts interface {
	// next returns the first start after a wall-clock time; zero if there is none.
	next(wall time.Time) time.Time
	// last returns the last start at or before a wall-clock time and not before since; zero if there is none.
	last(wall, since time.Time) time.Time
}

// end returns when the latest window that began at or before t ends, which may be before t; zero if none began recently
// enough to be active.
func (w window) end(t time.Time) time.Time {
	wall := latestWall(t, w.zone)
	began := w.starts.last(wall, wall.AddDate(0, 0, -w.days-2).Add(-w.duration))
	if began.IsZero() {
		return began
	}
	end := instant(began, w.zone)
	if w.days > 0 {
		end = instant(wallOf(end.In(w.zone)).AddDate(0, 0, w.days), w.zone)
	}
	return end.Add(w.duration)
}

// next returns the first start after t; zero if there is none.
func (w window) next(t time.Time) time.Time {
	first := w.starts.next(latestWall(t, w.zone))
	if first.IsZero() {
		return first
	}
	return instant(first, w.zone)
}

// span is a window with its latest start until a time, and its next one after that.
type span struct {
	window
	ends   time.Time // of the latest window that has begun, which may be in the past; zero if none is active
	begins time.Time // zero if none follows
}

// to moves the span forward to a time. Starts are searched only once the next one has come.
func (s *span) to(t time.Time) {
	if !s.begins.IsZero() && !s.begins.After(t) {
		s.ends, s.begins = s.end(t), s.next(t)
	}
}

// wallOf returns the wall-clock time in the zone of t.
func wallOf(t time.Time) time.Time { return t.Add(offset(t)).UTC() }

// latestWall returns the latest wall-clock time in the zone up to t. It is later than the wall-clock time at
// t if clocks were set back.
func latestWall(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	wall := wallOf(t)
	if begin, _ := t.ZoneBounds(); !begin.IsZero() {
		if before := wallOf(begin.Add(-1)); before.After(wall) {
			return before
		}
	}
	return wall
}

// instant returns when clocks in the zone show a wall-clock time: the first of two such times, or the end of the gap if
// that wall-clock time is skipped.
func instant(wall time.Time, zone *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(),
		wall.Nanosecond(), zone)
	begin, end := t.ZoneBounds()
	switch actual := wallOf(t); {
	case actual.Equal(wall):
		if !begin.IsZero() {
			if before := t.Add(offset(t) - offset(begin.Add(-1))); before.Before(begin) && wallOf(before).Equal(wall) {
				return before.UTC()
			}
		}
		return t.UTC()
	case actual.After(wall): // skipped; time.Date chose the offset after the gap
		return begin.UTC()
	default: // skipped; time.Date chose the offset before the gap
		return end.UTC()
	}
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
