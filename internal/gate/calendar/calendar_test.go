package calendar

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, value string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, value)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func closedEntries(cron string, d time.Duration, zone string) []Entry {
	return []Entry{{Cron: cron, Duration: d, TimeZone: zone}}
}

var onFridays = closedEntries("0 0 * * 5", 24*time.Hour, "Europe/Berlin")

var onWeekends = closedEntries("0 0 * * 6", 48*time.Hour, "Europe/Berlin")

var calendarCases = map[string]struct {
	entries []Entry
	at      string
	want    State
	next    string // empty: none
}{
	"before Friday": {entries: onFridays, at: "2026-11-26T22:59:59Z", want: None,
		next: "2026-11-26T23:00:00Z"},
	"start of Friday": {entries: onFridays, at: "2026-11-26T23:00:00Z", want: Closed,
		next: "2026-11-27T23:00:00Z"},
	"end of Friday": {entries: onFridays, at: "2026-11-27T23:00:00Z", want: None,
		next: "2026-12-03T23:00:00Z"},
	"Friday in summer time": {entries: onFridays, at: "2026-07-02T22:00:00Z", want: Closed,
		next: "2026-07-03T22:00:00Z"},
	"weekend of 49 hours": {entries: onWeekends, at: "2026-10-24T00:00:00Z", want: Closed,
		next: "2026-10-25T23:00:00Z"},
	"weekend of 47 hours": {entries: onWeekends, at: "2026-03-28T12:00:00Z", want: Closed,
		next: "2026-03-29T22:00:00Z"},
	"8 hours across the end of summer time": {entries: closedEntries("0 22 * * *", 8*time.Hour, "Europe/Berlin"),
		at:   "2026-10-24T21:00:00Z",
		want: Closed, next: "2026-10-25T04:00:00Z"},
	"start is skipped by summer time": {entries: closedEntries("30 2 29 3 *", time.Hour, "Europe/Berlin"),
		at: "2026-03-29T01:00:00Z", want: Closed,
		next: "2026-03-29T02:00:00Z"},
	"start occurs twice": {entries: closedEntries("30 2 25 10 *", time.Hour, "Europe/Berlin"),
		at:   "2026-10-25T00:30:00Z",
		want: Closed, next: "2026-10-25T01:30:00Z"},
	"second occurrence of the start": {entries: closedEntries("30 2 25 10 *", 10*time.Minute, "Europe/Berlin"),
		at:   "2026-10-25T01:30:00Z",
		want: None, next: "2027-10-25T00:30:00Z"},
	"clock change of half an hour": {entries: closedEntries("15 2 * 10 0", time.Hour, "Australia/Lord_Howe"),
		at:   "2026-10-03T15:30:00Z",
		want: Closed, next: "2026-10-03T16:30:00Z"},
	"start on a skipped day": {entries: closedEntries("0 12 30 12 *", time.Hour, "Pacific/Apia"),
		at: "2011-12-30T10:00:00Z", want: Closed,
		next: "2011-12-30T11:00:00Z"},
	"leap day by cron": {entries: closedEntries("0 0 29 2 *", 24*time.Hour, ""), at: "2027-01-01T00:00:00Z", want: None,
		next: "2028-02-29T00:00:00Z"},
	"yearly holiday": {entries: []Entry{{Dates: []string{"12-24", "2026-12-26"}, Duration: 24 * time.Hour}},
		at: "2031-12-24T12:00:00Z", want: Closed, next: "2031-12-25T00:00:00Z"},
	"holiday of one year": {entries: []Entry{{Dates: []string{"2026-12-26"}, Duration: 24 * time.Hour}},
		at: "2027-12-26T12:00:00Z", want: None},
	"adjacent holidays": {entries: []Entry{{Dates: []string{"12-24", "12-25"}, Duration: 24 * time.Hour}},
		at: "2026-12-24T12:00:00Z", want: Closed, next: "2026-12-26T00:00:00Z"},
	"first of several days in a year": {entries: []Entry{{Dates: []string{"2027-01-06", "03-01", "02-29", "03-01"},
		Duration: 24 * time.Hour}}, at: "2026-12-25T00:00:00Z", want: None, next: "2027-01-06T00:00:00Z"},
	"last of several days in a year": {entries: []Entry{{Dates: []string{"12-31", "02-29", "2025-06-01"},
		Duration: 72 * time.Hour}}, at: "2027-01-01T12:00:00Z", want: Closed, next: "2027-01-03T00:00:00Z"},
	"yearly leap day": {entries: []Entry{{Dates: []string{"02-29"}, Duration: 24 * time.Hour}},
		at: "2027-02-28T12:00:00Z", want: None, next: "2028-02-29T00:00:00Z"},
	"adjacent windows": {entries: closedEntries("0 0 * * 1-5", 24*time.Hour, ""), at: "2026-11-23T00:00:00Z",
		want: Closed,
		next: "2026-11-28T00:00:00Z"},
	"overlapping windows without end": {entries: closedEntries("* * * * *", time.Hour, ""), at: "2026-11-23T00:00:00Z",
		want: Closed},
	"adjacent windows of a minute": {entries: closedEntries("* * * * *", time.Minute, ""), at: "2026-11-23T00:00:30Z",
		want: Closed},
	"start of the Unix epoch": {entries: onFridays, at: "1970-01-01T00:00:00Z", want: None,
		next: "1970-01-01T23:00:00Z"},
	"no entries": {at: "2026-11-23T00:00:00Z", want: None},
	"closing overrides opening": {entries: []Entry{{Opens: true, Cron: "0 8 * * *", Duration: 8 * time.Hour},
		{Cron: "0 0 * * 5", Duration: 24 * time.Hour}}, at: "2026-11-27T09:00:00Z", want: Closed,
		next: "2026-11-28T00:00:00Z"},
	"before a closing window within an opening one": {
		entries: []Entry{{Opens: true, Cron: "0 8 * * *", Duration: 8 * time.Hour},
			{Cron: "0 12 * * *", Duration: time.Hour}}, at: "2026-11-27T09:00:00Z", want: Opened,
		next: "2026-11-27T12:00:00Z"},
	"after a closing window within an opening one": {
		entries: []Entry{{Opens: true, Cron: "0 8 * * *", Duration: 8 * time.Hour},
			{Cron: "0 12 * * *", Duration: time.Hour}}, at: "2026-11-27T13:00:00Z", want: Opened,
		next: "2026-11-27T16:00:00Z"},
}

func TestCalendar(t *testing.T) {
	for name, c := range calendarCases {
		t.Run(name, func(t *testing.T) {
			calendar, err := New(c.entries)
			if err != nil {
				t.Fatal(err)
			}
			now := at(t, c.at)
			if got, _ := calendar.At(now); got != c.want {
				t.Errorf("At = %d, want %d", got, c.want)
			}
			next := ""
			if n := calendar.Next(now); !n.IsZero() {
				next = n.UTC().Format(time.RFC3339)
			}
			if next != c.next {
				t.Errorf("Next = %q, want %q", next, c.next)
			}
		})
	}
}

// TestSundayAsLastWeekday tests Sunday as 7, and by name at the end of a range.
func TestSundayAsLastWeekday(t *testing.T) {
	for given, want := range map[string]string{
		"7": "0", "5-7": "0,5,6", "1-7/2": "0,1,3,5", "FRI-SUN": "0,5,6", "0-7": "0-6", "2,7": "0,2", "sun-tue": "0-2",
		"7-7": "0",
	} {
		var changes [2][]time.Time
		for i, days := range []string{given, want} {
			c, err := New([]Entry{{Cron: "0 12 * * " + days, Duration: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			for now := at(t, "2026-11-20T00:00:00Z"); now.Before(at(t, "2026-12-05T00:00:00Z")); now = c.Next(now) {
				changes[i] = append(changes[i], now)
			}
		}
		if !slices.EqualFunc(changes[0], changes[1], time.Time.Equal) {
			t.Errorf("%s changes at %s, want the same as %s: %s", given, changes[0], want, changes[1])
		}
	}
	for _, wrong := range []string{"8", "6-8", "7-2", "1-7/0", "7/2", "1-7/x"} {
		if _, err := New([]Entry{{Cron: "0 12 * * " + wrong, Duration: time.Hour}}); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestNewRejectsInvalidEntries(t *testing.T) {
	good := Entry{Cron: "0 0 * * 5", Duration: time.Hour}
	with := func(change func(*Entry)) Entry { e := good; change(&e); return e }
	for want, e := range map[string]Entry{
		"never fires":                  with(func(e *Entry) { e.Cron = "0 0 31 2 *" }),
		"is invalid":                   with(func(e *Entry) { e.Cron = "every friday" }),
		"expected exactly 5 fields":    with(func(e *Entry) { e.Cron = "0 0 0 * * 5" }),
		"sets a time zone":             with(func(e *Entry) { e.Cron = "CRON_TZ=Asia/Tokyo 0 0 * * 5" }),
		"has no fixed start":           with(func(e *Entry) { e.Cron = "@every 1h" }),
		`"Mars/Olympus" is unknown`:    with(func(e *Entry) { e.TimeZone = "Mars/Olympus" }),
		`"Local" is unknown`:           with(func(e *Entry) { e.TimeZone = "Local" }),
		`"../etc/passwd" is unknown`:   with(func(e *Entry) { e.TimeZone = "../etc/passwd" }),
		"duration 0s":                  with(func(e *Entry) { e.Duration = 0 }),
		"duration -1h0m0s":             with(func(e *Entry) { e.Duration = -time.Hour }),
		"duration 2562047h47m16.854":   with(func(e *Entry) { e.Duration = 1<<63 - 1 }),
		"set either cron or dates":     with(func(e *Entry) { e.Dates = []string{"12-24"} }),
		`date "12-32" is invalid`:      {Dates: []string{"12-32"}, Duration: time.Hour},
		`date "2026-02-29" is invalid`: {Dates: []string{"2026-02-29"}, Duration: time.Hour},
	} {
		e.Name = "freeze"
		_, err := New([]Entry{good, e})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "schedule[1] (freeze)") {
			t.Errorf("got error %v, want one of schedule[1] with %q", err, want)
		}
	}
}

// field is a field of a cron expression, as a list of numbers; nil is *.
type field []int

func (f field) String() string {
	if f == nil {
		return "*"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(f)), " ", ","), "[]")
}

func (f field) has(n int) bool { return f == nil || slices.Contains(f, n) }

// rule is an entry with its cron expression as fields.
type rule struct {
	Entry
	minute, hour, dom, month, dow field
}

func (r rule) matches(wall time.Time) bool {
	days := r.dom.has(wall.Day()) && r.dow.has(int(wall.Weekday()))
	if r.dom != nil && r.dow != nil {
		days = r.dom.has(wall.Day()) || r.dow.has(int(wall.Weekday())) // crontab(5)
	}
	return r.minute.has(wall.Minute()) && r.hour.has(wall.Hour()) && r.month.has(int(wall.Month())) && days
}

func randomRule(r *rand.Rand) rule {
	pick := func(never, from, to int) field {
		if r.IntN(10) < never {
			return nil
		}
		numbers := field{}
		for range 1 + r.IntN(3) {
			numbers = append(numbers, from+r.IntN(to-from+1))
		}
		return numbers
	}
	c := rule{minute: pick(0, 0, 59), hour: pick(2, 0, 5), dom: pick(6, 1, 31), month: pick(7, 1, 12),
		dow: pick(5, 0, 6)}
	c.Duration = []time.Duration{time.Minute, 7 * time.Minute, time.Hour, 90 * time.Minute, 8 * time.Hour, day,
		2*day + time.Hour, 9 * day}[r.IntN(8)]
	if c.hour == nil {
		c.Duration = min(c.Duration, 7*time.Minute) // otherwise the windows rarely end
	}
	c.Opens = r.IntN(2) == 0
	c.Cron = fmt.Sprint(c.minute, " ", c.hour, " ", c.dom, " ", c.month, " ", c.dow)
	return c
}

// stepMinutes evaluates every minute, and returns the state at from and the times at which it changes.
func stepMinutes(rules []rule, zone *time.Location, from, to time.Time) (State, []time.Time) {
	type running struct {
		until time.Time     // wall-clock time after the days of the duration
		rest  time.Duration // of the duration
		end   time.Time     // zero until clocks have shown the time "until"
	}
	open := make([][]running, len(rules))
	start := from.Add(-30 * day)
	shown := wallOf(start.In(zone)).Add(-time.Minute) // the latest wall-clock time so far
	var first, previous State
	var changes []time.Time
	for t := start; t.Before(to); t = t.Add(time.Minute) {
		wall := wallOf(t.In(zone))
		state := None
		for i, r := range rules {
			for skipped := shown.Add(time.Minute); !skipped.After(wall); skipped = skipped.Add(time.Minute) {
				if r.matches(skipped) {
					open[i] = append(open[i],
						running{until: wall.AddDate(0, 0, int(r.Duration/day)), rest: r.Duration % day})
				}
			}
			for j := range open[i] {
				if w := &open[i][j]; w.end.IsZero() && !w.until.After(wall) {
					w.end = t.Add(w.rest)
				}
			}
			open[i] = slices.DeleteFunc(open[i], func(w running) bool { return !w.end.IsZero() && !w.end.After(t) })
			if len(open[i]) > 0 && r.Opens {
				state = max(state, Opened)
			} else if len(open[i]) > 0 {
				state = Closed
			}
		}
		shown = later(shown, wall)
		switch {
		case t.Equal(from):
			first = state
		case t.After(from) && state != previous:
			changes = append(changes, t)
		}
		previous = state
	}
	return first, changes
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestCalendarMatchesEveryMinute compares calendars with an evaluation of every minute of a year, in zones with unusual
// clock changes.
func TestCalendarMatchesEveryMinute(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "America/St_Johns",
		"America/Asuncion", "Africa/Cairo",
		"Africa/Casablanca", "Asia/Tehran", "Asia/Kolkata", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia",
		"America/Santiago"}
	r := rand.New(rand.NewPCG(5, 5))
	years := len(zones)
	if os.Getenv("SLUICE_TEST_FULL") != "" {
		years *= 3
	}
	for i := range years {
		name := zones[i%len(zones)]
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		var rules []rule
		var entries []Entry
		for range 1 + r.IntN(3) {
			c := randomRule(r)
			c.TimeZone = name
			rules, entries = append(rules, c), append(entries, c.Entry)
		}
		calendar, err := New(entries)
		if err != nil {
			if strings.Contains(err.Error(), "never fires") {
				continue // February 30th
			}
			t.Fatal(err)
		}
		from := time.Date(2005+r.IntN(25), 1, 1, 0, 0, 0, 0, time.UTC)
		if name == "Pacific/Apia" {
			from = time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		to := from.AddDate(1, 0, 0)
		first, want := stepMinutes(rules, zone, from, to)
		if got, _ := calendar.At(from); got != first {
			t.Fatalf("%s %+v: At(%s) = %d, want %d", name, entries, from, got, first)
		}
		var got []time.Time
		for next := calendar.Next(from); !next.IsZero() && next.Before(to); next = calendar.Next(next) {
			got = append(got, next)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			for j := range min(len(got), len(want)) {
				if !got[j].Equal(want[j]) {
					t.Fatalf("%s %+v: change %d is at %s, want %s", name, entries, j, got[j], want[j])
				}
			}
			t.Fatalf("%s %+v: %d changes, want %d", name, entries, len(got), len(want))
		}
	}
}

func FuzzCron(f *testing.F) {
	f.Add("0 0 * * 5", "12-24", "Europe/Berlin", int64(time.Hour))
	f.Add("@daily", "2026-02-28", "", int64(-1))
	f.Add("*/7 1-3 29 2 mon", "02-29", "Pacific/Apia", int64(40*day))
	f.Fuzz(func(t *testing.T, expression, date, zone string, d int64) {
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		for _, e := range []Entry{{Cron: expression}, {Dates: []string{date}}} {
			e.Duration, e.TimeZone = time.Duration(d), zone
			c, err := New([]Entry{e})
			if err != nil {
				continue
			}
			state, _ := c.At(now)
			if next := c.Next(now); !next.IsZero() {
				if changed, _ := c.At(next); changed == state || !next.After(now) {
					t.Errorf("%+v: the state does not change at %s", e, next)
				}
			}
		}
	})
}

func BenchmarkAt(b *testing.B) {
	c := officeHours(b)
	for i := 0; b.Loop(); i++ {
		c.At(time.Date(2026, 1, 1+i%3650, i%24, 0, 0, 0, time.UTC))
	}
}

func BenchmarkNext(b *testing.B) {
	c := officeHours(b)
	for i := 0; b.Loop(); i++ {
		c.Next(time.Date(2026, 1, 1+i%3650, i%24, 0, 0, 0, time.UTC))
	}
}

// BenchmarkTenYears lists every change of ten years.
func BenchmarkTenYears(b *testing.B) {
	c := officeHours(b)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	changes := 0
	for b.Loop() {
		for t := begin; t.Before(begin.AddDate(10, 0, 0)); t = c.Next(t) {
			changes++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(changes), "µs/change")
}

// BenchmarkEndlessWindows is the worst case: adjacent windows that never end.
func BenchmarkEndlessWindows(b *testing.B) {
	c, err := New([]Entry{{Cron: "* * * * *", Duration: time.Minute}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}
}

// officeHours returns a calendar that opens in office hours, except on Fridays and holidays.
func officeHours(b *testing.B) *Calendar {
	c, err := New([]Entry{
		{Opens: true, Cron: "0 9 * * 1-5", Duration: 8 * time.Hour, TimeZone: "Europe/Berlin"},
		{Cron: "0 0 * * 5", Duration: day, TimeZone: "Europe/Berlin"},
		{Dates: []string{"12-24", "12-25", "12-26", "01-01"}, Duration: day, TimeZone: "Europe/Berlin"},
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// counted counts how often starts are searched.
type counted struct {
	starts
	searches *int
}

func (c counted) next(wall time.Time) time.Time { *c.searches++; return c.starts.next(wall) }
func (c counted) last(wall, since time.Time) time.Time {
	*c.searches++
	return c.starts.last(wall, since)
}

// TestSearchesAreFew evaluates a schedule that never changes its state and has as many windows as a Gate may have.
func TestSearchesAreFew(t *testing.T) {
	entries := []Entry{{Opens: true, Cron: "* * * * *", Duration: time.Minute}}
	for range 63 {
		entries = append(entries, Entry{Dates: slices.Repeat([]string{"02-29"}, 366), Duration: day})
	}
	c, err := New(entries)
	if err != nil {
		t.Fatal(err)
	}
	searches := 0
	for i := range c.windows {
		if i > 0 && len(c.windows[i].starts.(dates).yearly) != 1 {
			t.Errorf("a day is kept %d times", len(c.windows[i].starts.(dates).yearly))
		}
		c.windows[i].starts = counted{c.windows[i].starts, &searches}
	}
	if next := c.Next(at(t, "2026-11-23T00:00:30Z")); !next.IsZero() {
		t.Errorf("Next = %s", next)
	}
	if most := 2 * (maxSteps + len(entries)); searches > most {
		t.Errorf("%d searches, more than %d", searches, most)
	}
}
