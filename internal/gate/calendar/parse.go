package calendar

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parser parses the five fields of crontab(5), and descriptors such as @weekly.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// leapYear is where the search begins for a time at which an expression fires.
var leapYear = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Minute)

func parseCron(expression string) (starts, error) {
	if strings.Contains(expression, "TZ=") {
		return nil, fmt.Errorf("cron %q sets a time zone: use timeZone instead", expression)
	}
	if strings.HasPrefix(strings.TrimSpace(expression), "@every") {
		return nil, fmt.Errorf("cron %q has no fixed start: use the five fields", expression)
	}
	s, err := parser.Parse(normalizeWeekdays(expression))
	if err != nil {
		return nil, fmt.Errorf("cron %q is invalid: %w", expression, err)
	}
	fields, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("cron %q is not supported", expression)
	}
	r := recurrence(*fields)
	if r.next(leapYear).IsZero() {
		return nil, fmt.Errorf("cron %q never fires", expression)
	}
	return r, nil
}

// weekdays is the names of days in crontab(5), where Sunday is 0 or 7.
var weekdays = map[string]int{
	"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4,
	"fri": 5, "sat": 6,
}

// normalizeWeekdays rewrites weekday 7, and ranges that end on a Sunday, which the library does not support.
func normalizeWeekdays(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) != 5 {
		return expression
	}
	var days []string
	for part := range strings.SplitSeq(fields[4], ",") {
		span, stepText, hasStep := strings.Cut(part, "/")
		first, last, isRange := strings.Cut(strings.ToLower(span), "-")
		from, known := weekdays[first]
		to, lastKnown := weekdays[last]
		if last == "sun" && from > 0 {
			to = 7
		}
		step := 1
		var err error
		if hasStep {
			step, err = strconv.Atoi(stepText)
		}
		switch {
		case first == "7" && !isRange && !hasStep:
			days = append(days, "0")
		case known && isRange && lastKnown && to == 7 && err == nil && step > 0:
			for d := from; d <= to; d += step {
				days = append(days, strconv.Itoa(d%7))
			}
		default: // unchanged; the library reports errors
			days = append(days, part)
		}
	}
	return strings.Join(append(fields[:4], strings.Join(days, ",")), " ")
}

// parseDates parses days. Their windows start at midnight.
func parseDates(texts []string) (starts, error) {
	var d dates
	for _, text := range texts {
		if once, err := time.Parse(time.DateOnly, text); err == nil {
			d.once = append(d.once, once)
			continue
		}
		yearly, err := time.Parse(time.DateOnly, "2000-"+text) // a leap year
		if err != nil {
			return nil, fmt.Errorf("date %q is invalid: write it as 2026-12-24, or as 12-25 for every year", text)
		}
		d.yearly = append(d.yearly, yearly)
	}
	for _, list := range []*[]time.Time{&d.once, &d.yearly} {
		slices.SortFunc(*list, time.Time.Compare)
		*list = slices.CompactFunc(*list, time.Time.Equal)
	}
	return d, nil
}

// dates is a set of days, each in ascending order.
type dates struct {
	once   []time.Time
	yearly []time.Time // in a leap year
}

func (d dates) next(wall time.Time) time.Time {
	var once time.Time
	if i := sort.Search(len(d.once), func(i int) bool { return d.once[i].After(wall) }); i < len(d.once) {
		once = d.once[i]
	}
	i := d.passed(wall)
	for year := wall.Year(); year <= wall.Year()+maxYears; year, i = year+1, 0 {
		for ; i < len(d.yearly); i++ {
			if day, exists := inYear(d.yearly[i], year); exists {
				if once.IsZero() || day.Before(once) {
					return day
				}
				return once
			}
		}
	}
	return once
}

func (d dates) last(wall, since time.Time) time.Time {
	var latest time.Time
	if i := sort.Search(len(d.once), func(i int) bool { return d.once[i].After(wall) }); i > 0 {
		latest = d.once[i-1]
	}
	i := d.passed(wall)
	for year := wall.Year(); year >= since.Year() && latest.Year() <= year; year, i = year-1, len(d.yearly) {
		for i--; i >= 0; i-- {
			if day, exists := inYear(d.yearly[i], year); exists && day.After(latest) {
				latest = day
				break
			}
		}
	}
	if latest.Before(since) {
		return time.Time{}
	}
	return latest
}

// passed returns how many of the yearly days were in the year of a wall-clock time until then.
func (d dates) passed(wall time.Time) int {
	return sort.Search(len(d.yearly), func(i int) bool {
		day, _ := inYear(d.yearly[i], wall.Year())
		return day.After(wall)
	})
}

// inYear returns a day in a year, or the day after a leap day that does not exist in the year.
func inYear(yearly time.Time, year int) (day time.Time, exists bool) {
	day = time.Date(year, yearly.Month(), yearly.Day(), 0, 0, 0, 0, time.UTC)
	return day, day.Day() == yearly.Day()
}

// recurrence is a parsed cron expression: a bit set of numbers per field. The search of the library is not used: it is
// slow, as it handles daylight saving time, and it does not search backwards.
type recurrence cron.SpecSchedule

// maxYears is more than the time between two leap days, which is at most 8 years.
const maxYears = 9

func (r recurrence) next(wall time.Time) time.Time {
	t := wall.Truncate(time.Minute).Add(time.Minute)
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

func (r recurrence) last(wall, since time.Time) time.Time {
	for d := wall.Truncate(day); !d.Add(day).Before(since); {
		if r.Month&(1<<d.Month()) == 0 {
			d = d.AddDate(0, 0, -d.Day())
			continue
		}
		if r.on(d) {
			if m := r.until(min(24*60-1, int(wall.Sub(d)/time.Minute))); m >= 0 {
				return d.Add(time.Duration(m) * time.Minute)
			}
		}
		d = d.Add(-day)
	}
	return time.Time{}
}

// on reports whether there are starts on a day. If neither the day of month nor the day of week is *, a match of one of
// them suffices, as in crontab(5).
func (r recurrence) on(d time.Time) bool {
	month, week := r.Dom&(1<<d.Day()) != 0, r.Dow&(1<<d.Weekday()) != 0
	if r.Dom>>63 == 1 || r.Dow>>63 == 1 {
		return month && week
	}
	return month || week
}

// from returns the first start on a day at or after a minute of the day, -1 if there is none.
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

// until returns the last start on a day at or before a minute of the day, -1 if there is none.
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
