package inputprovider

import (
	"testing"
	"time"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// schedules returns a list of schedules: cron, zone, window, and so on.
func schedules(t *testing.T, texts ...string) (list []controlplanev1.InputSchedule) {
	t.Helper()
	for i := 0; i < len(texts); i += 3 {
		window, err := time.ParseDuration(texts[i+2])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, controlplanev1.InputSchedule{Cron: texts[i], TimeZone: texts[i+1],
			Window: meta.DurationOf(window)})
	}
	return list
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestWindows has a window from 10:00 to 12:00 in Berlin on weekdays, and a timeout of two minutes: a pass must end
// within the window.
func TestWindows(t *testing.T) {
	t.Parallel()
	c, err := newCalendar(schedules(t, "0 10 * * 1-5", "Europe/Berlin", "2h"), 2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]struct {
		allowed bool
		next    string
	}{
		"2026-11-27T09:59:59+01:00": {false, "2026-11-27T10:00:00+01:00"},
		"2026-11-27T10:00:00+01:00": {true, "2026-11-30T10:00:00+01:00"},
		"2026-11-27T11:58:00+01:00": {true, "2026-11-30T10:00:00+01:00"},
		"2026-11-27T11:58:01+01:00": {false, "2026-11-30T10:00:00+01:00"},
		"2026-11-28T10:30:00+01:00": {false, "2026-11-30T10:00:00+01:00"}, // a Saturday
		"2026-07-10T10:00:00+02:00": {true, "2026-07-13T10:00:00+02:00"},  // in summer
		"2026-07-10T09:00:00+01:00": {true, "2026-07-13T10:00:00+02:00"},
	} {
		var status controlplanev1.ResourceSetInputProviderStatus
		if got := c.allows(at(t, now), 2*time.Minute); got != want.allowed {
			t.Errorf("%s: allowed is %t", now, got)
		}
		if !c.note(&status, at(t, now)) || !status.NextSchedule.When.Time.Equal(at(t, want.next)) {
			t.Errorf("%s: next is %v, want %s", now, status.NextSchedule, want.next)
		}
		if c.note(&status, at(t, now)) {
			t.Errorf("%s: the next start changed without a reason", now)
		}
	}
}

// TestWaits has the time to the next pass after a success.
func TestWaits(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-27T10:30:00Z")
	for name, c := range map[string]struct {
		schedules []controlplanev1.InputSchedule
		allowed   bool
		want      time.Duration // zero is the interval of 10m
	}{
		"no schedule": {nil, true, 0},
		"no window":   {schedules(t, "0 12 * * *", "UTC", "0s"), true, 90 * time.Minute},
		"in a window": {schedules(t, "0 10 * * *", "UTC", "1h"), true, 0},
		"in a window, next is near": {schedules(t, "0 10 * * *", "UTC", "1h", "35 10 * * *", "", "0s"), true,
			5 * time.Minute},
		"outside of the window": {schedules(t, "0 11 * * *", "UTC", "1h"), false, 30 * time.Minute},
		"@daily":                {schedules(t, "@daily", "UTC", "0s"), true, 13*time.Hour + 30*time.Minute},
	} {
		calendar, err := newCalendar(c.schedules, 2*time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var status controlplanev1.ResourceSetInputProviderStatus
		calendar.note(&status, now)
		if got := calendar.allows(now, 2*time.Minute); got != c.allowed {
			t.Errorf("%s: allowed is %t", name, got)
		}
		if got := calendar.wait(&status, now, 10*time.Minute); got != c.want {
			t.Errorf("%s: waits %s, want %s", name, got, c.want)
		}
	}
}

func TestInvalidSchedules(t *testing.T) {
	t.Parallel()
	for name, s := range map[string][]controlplanev1.InputSchedule{
		"no cron":         schedules(t, "daily", "UTC", "0s"),
		"six fields":      schedules(t, "0 0 0 * * *", "UTC", "0s"),
		"zone in cron":    schedules(t, "TZ=UTC 0 0 * * *", "UTC", "0s"),
		"no zone":         schedules(t, "0 0 * * *", "Mars/Base", "0s"),
		"the local zone":  schedules(t, "0 0 * * *", "Local", "0s"),
		"a short window":  schedules(t, "0 0 * * *", "UTC", "3m59s"),
		"February 30":     schedules(t, "0 0 30 2 *", "UTC", "0s"),
		"the second of 2": schedules(t, "0 0 * * *", "UTC", "0s", "0 0 * * 9", "UTC", "0s"),
	} {
		_, err := newCalendar(s, 2*time.Minute)
		if f := fault.As(err); f == nil || f.Reason != controlplanev1.InvalidScheduleReason || !f.Terminal {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := newCalendar(schedules(t, "0 0 * * *", "UTC", "4m"), 2*time.Minute); err != nil {
		t.Error(err)
	}
}
