package inputprovider

import (
	"cmp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// parser parses the five fields of crontab(5), and descriptors such as @weekly.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// calendar is spec.schedule. An empty one allows a reconcile at any time.
type calendar []recurrence

type recurrence struct {
	controlplanev1.InputSchedule
	starts   cron.Schedule
	location *time.Location
}

func newCalendar(schedules []controlplanev1.InputSchedule, timeout time.Duration) (calendar, error) {
	var c calendar
	for i, s := range schedules {
		invalid := func(format string, args ...any) *fault.Fault {
			return fault.New(controlplanev1.InvalidScheduleReason, "spec.schedule[%d]: "+format,
				append([]any{i}, args...)...).Final()
		}
		s.TimeZone = cmp.Or(s.TimeZone, "UTC")
		location, err := time.LoadLocation(s.TimeZone)
		if err != nil || s.TimeZone == "Local" {
			return nil, invalid("'%s' is not a time zone", excerpt.Chars(s.TimeZone, 100)).
				WithHint("Use a name such as Europe/Berlin")
		}
		if strings.Contains(s.Cron, "TZ=") {
			return nil, invalid("the cron expression sets a time zone").WithHint("Use the field timeZone")
		}
		starts, err := parser.Parse(s.Cron)
		if err != nil {
			return nil, invalid("cron '%s' is not valid", excerpt.Chars(s.Cron, 100)).Because(err).
				WithHint("Use the five fields of crontab, or a descriptor such as @daily")
		}
		if window := s.Window.Duration; window != 0 && window < 2*timeout {
			return nil, invalid("window %s is shorter than twice the timeout of %s", window, timeout).
				WithHint("Set a longer window, or a shorter timeout with the annotation %s",
					controlplanev1.ReconcileTimeoutAnnotation)
		}
		c = append(c, recurrence{s, starts, location})
	}
	for i, r := range c {
		if r.after(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
			return nil, fault.New(controlplanev1.InvalidScheduleReason, "spec.schedule[%d]: cron '%s' never starts", i,
				excerpt.Chars(r.Cron, 100)).Final()
		}
	}
	return c, nil
}

// after returns the first start after a time; zero if there is none within five years.
func (r recurrence) after(t time.Time) time.Time { return r.starts.Next(t.In(r.location)) }

// allows reports whether a reconcile that takes at most the timeout may begin now. A schedule without a window
// always allows it.
func (c calendar) allows(now time.Time, timeout time.Duration) bool {
	for _, r := range c {
		if r.Window.Duration == 0 || r.hasRoom(now, timeout) {
			return true
		}
	}
	return len(c) == 0
}

// hasRoom reports whether a window is open that does not end before the timeout.
func (r recurrence) hasRoom(now time.Time, timeout time.Duration) bool {
	start := r.after(now.Add(timeout - r.Window.Duration - time.Nanosecond))
	return !start.IsZero() && !start.After(now)
}

// note sets the next start in the status, and reports whether it changed.
func (c calendar) note(status *controlplanev1.ResourceSetInputProviderStatus, now time.Time) bool {
	var next *controlplanev1.NextSchedule
	for _, r := range c {
		if start := r.after(now); !start.IsZero() && (next == nil || start.Before(next.When.Time)) {
			next = &controlplanev1.NextSchedule{InputSchedule: r.InputSchedule, When: meta.TimeOf(start.Local())}
		}
	}
	before := status.NextSchedule
	if before != nil && next != nil && before.InputSchedule == next.InputSchedule &&
		before.When.Time.Equal(next.When.Time) {
		return false
	}
	status.NextSchedule = next
	return next != nil
}

// wait returns the time to the next reconcile after a success; zero for the interval. While no window is open, that is
// the next start.
func (c calendar) wait(status *controlplanev1.ResourceSetInputProviderStatus, now time.Time,
	interval time.Duration) time.Duration {
	if len(c) == 0 || status.NextSchedule == nil {
		return 0
	}
	next := status.NextSchedule.When.Sub(now)
	for _, r := range c {
		if r.Window.Duration != 0 && r.hasRoom(now, 0) && interval < next {
			return 0
		}
	}
	return next
}
