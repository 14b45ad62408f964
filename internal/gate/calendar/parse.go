package calendar

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parser reads the five fields that crontab(5) has, and descriptors such as @weekly.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// someLeapYear is where the search for a time begins at which a cron fires at all.
var someLeapYear = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Minute)

func parseCron(expression string) (starts, error) {
	if strings.Contains(expression, "TZ=") {
		return nil, fmt.Errorf("cron %q sets a time zone: use timeZone", expression)
	}
	if strings.HasPrefix(strings.TrimSpace(expression), "@every") {
		return nil, fmt.Errorf("cron %q counts from an unknown start: use the five fields", expression)
	}
	s, err := parser.Parse(sundays(expression))
	if err != nil {
		return nil, fmt.Errorf("cron %q cannot be read: %w", expression, err)
	}
	fields, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("cron %q cannot be followed", expression)
	}
	r := recurrence(*fields)
	if r.next(someLeapYear).IsZero() {
		return nil, fmt.Errorf("cron %q never fires", expression)
	}
	return r, nil
}

// weekdays of crontab(5), in which a week may end on a Sunday as well.
var weekdays = map[string]int{
	"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4,
	"fri": 5, "sat": 6,
}

// sundays writes the 7 as a day of the week, and a range up to a Sunday, in days that the library knows.
func sundays(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) != 5 {
		return expression
	}
	var days []string
	for part := range strings.SplitSeq(fields[4], ",") {
		span, each, stepped := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(strings.ToLower(span), "-")
		from, known := weekdays[first]
		to, sunday := weekdays[last]
		if last == "sun" && from > 0 {
			to = 7
		}
		step := 1
		var err error
		if stepped {
			step, err = strconv.Atoi(each)
		}
		switch {
		case first == "7" && !ranged && !stepped:
			days = append(days, "0")
		case known && ranged && sunday && to == 7 && err == nil && step > 0:
			for d := from; d <= to; d += step {
				days = append(days, strconv.Itoa(d%7))
			}
		default: // as it stands, or the library says what is wrong
			days = append(days, part)
		}
	}
	return strings.Join(append(fields[:4], strings.Join(days, ",")), " ")
}

// parseDates reads days as starts at their midnight.
func parseDates(dates []string) ([]starts, error) {
	var all []starts
	for _, d := range dates {
		if once, err := time.Parse(time.DateOnly, d); err == nil {
			all = append(all, date(once))
			continue
		}
		yearly, err := time.Parse(time.DateOnly, "2000-"+d) // a leap year
		if err != nil {
			return nil, fmt.Errorf("date %q is no day: write it as 2026-12-24, or as 12-25 for every year", d)
		}
		all = append(all, recurrence{Minute: 1, Hour: 1, Dom: 1 << yearly.Day(), Month: 1 << yearly.Month(), Dow: star})
	}
	return all, nil
}

// date starts once.
type date time.Time

func (d date) next(shown time.Time) time.Time {
	if once := time.Time(d); once.After(shown) {
		return once
	}
	return time.Time{}
}

func (d date) last(shown, since time.Time) time.Time {
	if once := time.Time(d); !once.After(shown) && !once.Before(since) {
		return once
	}
	return time.Time{}
}

// recurrence is a cron expression as the library reads it: a set of numbers a field, in the bits. The
// library's own search knows no way back and is slow, since it minds daylight saving.
type recurrence cron.SpecSchedule

// star is a field of days of the week that was *: the bit that says so, beside all numbers.
const star = 1<<63 | (1<<7 - 1)

// maxYears is more than lies between two leap days.
const maxYears = 9

func (r recurrence) next(shown time.Time) time.Time {
	t := shown.Truncate(time.Minute).Add(time.Minute)
	for d, limit := t.Truncate(day), t.AddDate(maxYears, 0, 0); d.Before(limit); {
		if r.Month&(1<<d.Month()) == 0 {
			d = time.Date(d.Year(), d.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if r.on(d) {
			if m := r.from(max(0, int(t.Sub(d)/time.Minute))); m >= 0 {
				return d.Add(time.Duration(m) * time.Minute)
			}
		}
		d = d.Add(day)
	}
	return time.Time{}
}

func (r recurrence) last(shown, since time.Time) time.Time {
	for d := shown.Truncate(day); !d.Add(day).Before(since); {
		if r.Month&(1<<d.Month()) == 0 {
			d = d.AddDate(0, 0, -d.Day())
			continue
		}
		if r.on(d) {
			if m := r.until(min(24*60-1, int(shown.Sub(d)/time.Minute))); m >= 0 {
				return d.Add(time.Duration(m) * time.Minute)
			}
		}
		d = d.Add(-day)
	}
	return time.Time{}
}

// on tells whether there are starts on a day. A day of the month and one of the week add up if neither is *,
// as in crontab(5).
func (r recurrence) on(d time.Time) bool {
	month, week := r.Dom&(1<<d.Day()) != 0, r.Dow&(1<<d.Weekday()) != 0
	if r.Dom>>63 == 1 || r.Dow>>63 == 1 {
		return month && week
	}
	return month || week
}

// from returns the first start in a day at or after a minute of it, or less than zero.
func (r recurrence) from(minute int) int {
	h, m := minute/60, minute%60
	hours, minutes := r.Hour&(1<<24-1), r.Minute&(1<<60-1)
	if later := minutes >> m; hours&(1<<h) != 0 && later != 0 {
		return h*60 + m + bits.TrailingZeros64(later)
	}
	if later := hours >> (h + 1); later != 0 {
		return (h+1+bits.TrailingZeros64(later))*60 + bits.TrailingZeros64(minutes)
	}
	return -1
}

// until returns the last start in a day at or before a minute of it, or less than zero.
func (r recurrence) until(minute int) int {
	h, m := minute/60, minute%60
	hours, minutes := r.Hour&(1<<24-1), r.Minute&(1<<60-1)
	if earlier := minutes & (1<<(m+1) - 1); hours&(1<<h) != 0 && earlier != 0 {
		return h*60 + bits.Len64(earlier) - 1
	}
	if earlier := hours & (1<<h - 1); earlier != 0 {
		return (bits.Len64(earlier)-1)*60 + bits.Len64(minutes) - 1
	}
	return -1
}
