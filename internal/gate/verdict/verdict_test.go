package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// day is the date of all test times, a Saturday.
const day = "2026-11-21T"

// at returns a time of the day, such as 10:00.
func at(hm string) time.Time {
	parsed, err := time.Parse(time.RFC3339, day+hm+":00Z")
	if err != nil {
		panic(err) // the argument is a literal
	}
	return parsed
}

// requests returns the annotations of requests such as "open 10:00".
func requests(all ...string) map[string]string {
	annotations := map[string]string{}
	for _, r := range all {
		verb, at, _ := strings.Cut(r, " ")
		annotations[verb+".gate.fluxcd.io/requestedAt"] = day + at + ":00Z"
	}
	return annotations
}

func newInput(t testing.TB, opened bool, window time.Duration, annotations map[string]string,
	entries ...calendar.Entry) Input {
	t.Helper()
	in := Input{Opened: opened, Window: window, Overridable: true}
	var err error
	if in.Requests, err = ReadRequests(annotations); err != nil {
		t.Fatal(err)
	}
	if in.Calendar, err = calendar.New(entries); err != nil {
		t.Fatal(err)
	}
	return in
}

func hm(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04")
}

func scheduledFor(word, at string) string {
	return "Gate scheduled for " + word + " at " + day + at + ":00Z"
}

var windowCases = map[string]struct {
	opened      bool
	window      time.Duration
	annotations map[string]string
	now         string
	open        bool
	message     string
	requested   string
	reset       string
	next        string
}{
	"closed by default": {window: time.Hour, now: "10:00", message: "Gate closed by default"},
	"opened by default": {opened: true, window: time.Hour, now: "10:00", open: true, message: "Gate opened by default"},
	"open request": {window: time.Hour, annotations: requests("open 10:00"), now: "10:05", open: true,
		message: scheduledFor("closing", "11:00"), requested: "10:00", reset: "11:00", next: "11:00"},
	"open request near the end of its window": {window: time.Hour, annotations: requests("open 10:00"), now: "10:59",
		open:    true,
		message: scheduledFor("closing", "11:00"), requested: "10:00", reset: "11:00", next: "11:00"},
	"open request after its window": {window: time.Hour, annotations: requests("open 10:00"), now: "11:00",
		message: "Gate closed by default", requested: "10:00", reset: "11:00"},
	"open request long after its window": {window: time.Hour, annotations: requests("open 10:00"), now: "20:00",
		message: "Gate closed by default", requested: "10:00", reset: "11:00"},
	"close request ends an open request": {window: time.Hour,
		annotations: requests("open 10:00", "close 10:20"), now: "10:20", message: "Gate close requested",
		requested: "10:20", reset: "10:20"},
	"close request long after an open request": {window: time.Hour,
		annotations: requests("open 10:00", "close 10:20"), now: "20:00", message: "Gate close requested",
		requested: "10:20", reset: "10:20"},
	"close request before an open request": {window: time.Hour, annotations: requests("open 10:00", "close 09:00"),
		now: "10:05", open: true,
		message: scheduledFor("closing", "11:00"), requested: "10:00", reset: "11:00", next: "11:00"},
	"close request for a gate opened by default": {opened: true, window: 24 * time.Hour,
		annotations: requests("close 10:00"), now: "10:00",
		message: "Gate scheduled for opening at 2026-11-22T10:00:00Z", requested: "10:00", reset: "10:00",
		next: "10:00"},
	"open request ends a close request": {opened: true, window: time.Hour,
		annotations: requests("close 10:00", "open 10:30"), now: "10:30", open: true,
		message: "Gate open requested", requested: "10:30", reset: "10:30"},
	"close request after its window": {opened: true, window: time.Hour, annotations: requests("close 10:00"),
		now: "11:00", open: true,
		message: "Gate opened by default", requested: "10:00", reset: "11:00"},
	"open request without a window": {annotations: requests("open 10:00"), now: "23:00", open: true,
		message: "Gate open requested", requested: "10:00"},
	"close request ends an open request without a window": {annotations: requests("open 10:00",
		"close 12:00"), now: "12:00", message: "Gate close requested", requested: "12:00", reset: "12:00"},
	"close request without a window": {opened: true, annotations: requests("close 10:00"), now: "23:00",
		message: "Gate close requested", requested: "10:00"},
	"open request ends a close request without a window": {opened: true,
		annotations: requests("close 10:00", "open 12:00"), now: "12:00", open: true,
		message: "Gate open requested", requested: "12:00", reset: "12:00"},
	"open request in the future": {window: time.Hour, annotations: requests("open 10:00"), now: "09:59",
		message: "Gate closed by default", next: "10:00"},
	"future close request within the window of an open request": {window: time.Hour,
		annotations: requests("open 10:00", "close 10:30"), now: "10:10", open: true,
		message: scheduledFor("closing", "10:30"), requested: "10:00", reset: "10:30", next: "10:30"},
	"future close request and an open request without a window": {annotations: requests("open 10:00",
		"close 18:00"), now: "10:10", open: true,
		message: scheduledFor("closing", "18:00"), requested: "10:00", reset: "18:00", next: "18:00"},
	"future close request after the window of an open request": {window: time.Hour,
		annotations: requests("open 10:00", "close 18:00"), now: "10:10", open: true,
		message: scheduledFor("closing", "11:00"), requested: "10:00", reset: "11:00", next: "11:00"},
	"future open request within the window of a close request": {opened: true, window: 4 * time.Hour,
		annotations: requests("close 10:00", "open 12:00"), now: "10:10",
		message: scheduledFor("opening", "12:00"), requested: "10:00", reset: "12:00", next: "12:00"},
	"latest of three requests": {window: time.Hour, annotations: requests("open 10:00", "close 10:10", "open 10:20"),
		now: "10:25", open: true, message: scheduledFor("closing", "11:20"), requested: "10:20", reset: "11:20",
		next: "11:20"},
	"open request for a gate opened by default": {opened: true, window: time.Hour, annotations: requests("open 10:00"),
		now: "10:10", open: true,
		message: "Gate open requested", requested: "10:00", reset: "10:00"},
}

// TestDefaultsRequestsAndWindows covers each sentence of the gate specification.
func TestDefaultsRequestsAndWindows(t *testing.T) {
	for name, c := range windowCases {
		t.Run(name, func(t *testing.T) {
			v := Of(newInput(t, c.opened, c.window, c.annotations), at(c.now))
			if v.Open != c.open || v.Message != c.message || hm(v.RequestedAt) != c.requested ||
				hm(v.ResetAt) != c.reset || hm(v.Next) != c.next {
				t.Errorf("got %t %q, requested %s, reset %s, next %s", v.Open, v.Message, hm(v.RequestedAt),
					hm(v.ResetAt), hm(v.Next))
			}
		})
	}
}

func TestReadRequestsRejectsInvalidAnnotations(t *testing.T) {
	signed := func(extra map[string]string) map[string]string {
		a := requests("override 10:00")
		for k, v := range extra {
			a["override.gate.fluxcd.io/"+k] = v
		}
		return a
	}
	for want, annotations := range map[string]map[string]string{
		"at the same time": requests("open 10:00", "close 10:00"),
		"at the same time, 2026-11-21T09:00:00Z. Set one of the two annotations to a later " +
			"time": {"open.gate.fluxcd.io/requestedAt": "2026-11-21T10:00:00+01:00",
			"close.gate.fluxcd.io/requestedAt": "2026-11-21T09:00:00Z"},
		`"tomorrow", which is not a valid time. Write it in RFC 3339 format, such as ` +
			"2006-01-02T15:04:05Z": {"open.gate.fluxcd.io/requestedAt": "tomorrow"},
		`"", which is not a valid time`:    {"close.gate.fluxcd.io/requestedAt": ""},
		`"2026-13-01T00:00:00Z", which is`: {"open.gate.fluxcd.io/requestedAt": "2026-13-01T00:00:00Z"},
		`"0000-01-01T00:00:00Z", which is`: {"open.gate.fluxcd.io/requestedAt": "0000-01-01T00:00:00Z"},
		`"-1h", which is not a valid window. Set it to a positive duration such as 2h, at most ` +
			`87600h0m0s`: {"open.gate.fluxcd.io/requestedAt": day + "10:00:00Z",
			"open.gate.fluxcd.io/window": "-1h"},
		`"2562048h", which is not a valid window`: {"open.gate.fluxcd.io/requestedAt": day + "10:00:00Z",
			"open.gate.fluxcd.io/window": "2562048h"},
		`"99999h", which is not a valid window`: {"close.gate.fluxcd.io/requestedAt": day + "10:00:00Z",
			"close.gate.fluxcd.io/window": "99999h"},
		"requires a reason": signed(map[string]string{"requestedBy": day + "10:00:00Z alice"}),
		"and a requester for the same time. Set override.gate.fluxcd.io/reason and " +
			"override.gate.fluxcd.io/requestedBy too, or use `sluice gate open --override " +
			"--reason`": signed(map[string]string{"reason": "fire"}),
		"for the same time": signed(map[string]string{"reason": "fire", "requestedBy": day +
			"09:00:00Z alice"}),
	} {
		_, err := ReadRequests(annotations)
		if f := fault.As(err); f == nil || f.Reason != gatingv1.InvalidRequestReason || !f.Terminal ||
			!strings.Contains(f.Error(), want) {
			t.Errorf("%v: got error %v, want %q", annotations, err, want)
		}
	}
}

func TestCalendarWithRequests(t *testing.T) {
	weekend := calendar.Entry{Name: "weekend", Cron: "0 9 * * 6", Duration: 8 * time.Hour}
	train := calendar.Entry{Name: "train", Opens: true, Cron: "0 12 * * *", Duration: time.Hour}
	for name, c := range map[string]struct {
		opened      bool
		strict      bool
		annotations map[string]string
		entries     []calendar.Entry
		now         string
		want        string // state, reason, next
	}{
		"closed by schedule": {opened: true, entries: []calendar.Entry{weekend}, now: "10:00",
			want: "closed Scheduled 17:00"},
		"before the schedule begins": {opened: true, entries: []calendar.Entry{weekend}, now: "08:00",
			want: "opened Default 09:00"},
		"request overrides the schedule": {opened: true, annotations: requests("open 10:00"),
			entries: []calendar.Entry{weekend},
			now:     "10:10", want: "opened Requested 11:00"},
		"request after its window": {opened: true, annotations: requests("open 10:00"),
			entries: []calendar.Entry{weekend},
			now:     "11:00", want: "closed Scheduled 17:00"},
		"request does not override a strict schedule": {opened: true, strict: true, annotations: requests("open 10:00"),
			entries: []calendar.Entry{weekend}, now: "10:10",
			want: "closed Scheduled 17:00"},
		"strict schedule that is not active": {strict: true, annotations: requests("open 08:00"),
			entries: []calendar.Entry{weekend},
			now:     "08:10", want: "opened Requested 09:00"},
		"opened by schedule": {entries: []calendar.Entry{train}, now: "12:30",
			want: "opened Scheduled 13:00"},
		"close request overrides an opening schedule": {annotations: requests("close 12:20"),
			entries: []calendar.Entry{train},
			now:     "12:30", want: "closed Requested 12:00"},
		"close request does not override a strict schedule": {strict: true, annotations: requests("close 12:20"),
			entries: []calendar.Entry{train},
			now:     "12:30", want: "opened Scheduled 13:00"},
		"closing schedule overrides an opening one": {entries: []calendar.Entry{train, weekend}, now: "12:30",
			want: "closed Scheduled 12:00"},
		"close request that ended before the schedule began": {annotations: requests("close 02:00"),
			entries: []calendar.Entry{train},
			now:     "12:30", want: "opened Scheduled 13:00"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newInput(t, c.opened, time.Hour, c.annotations, c.entries...)
			k.Overridable = !c.strict
			v := Of(k, at(c.now))
			if got := fmt.Sprint(State(v.Open), " ", v.Reason, " ", hm(v.Next)); got != c.want {
				t.Errorf("got %q (%s), want %q", got, v.Message, c.want)
			}
		})
	}
}

func TestFailedCheckClosesGate(t *testing.T) {
	c := newInput(t, true, time.Hour, nil)
	c.Checks = []Check{{Name: "good", Passes: true}, {Name: "errors", Message: "the query returned 7"}}
	v := Of(c, at("10:10"))
	if v.Open || v.Reason != gatingv1.WhyCheckFailed || v.Message != "Gate closed: check 'errors' does not pass" ||
		!strings.Contains(v.Why, "returned 7") {
		t.Errorf("got %+v", v)
	}
	c.Checks[1].Passes = true
	if v := Of(c, at("10:10")); !v.Open {
		t.Errorf("got %+v", v)
	}
}

func TestOverride(t *testing.T) {
	annotations := requests("override 10:00", "open 09:00")
	annotations["override.gate.fluxcd.io/reason"] = "the shop is down"
	annotations["override.gate.fluxcd.io/requestedBy"] = day + "10:00:00Z alice"
	c := newInput(t, false, time.Hour, annotations, calendar.Entry{Cron: "0 0 * * *", Duration: 24 * time.Hour})
	c.Overridable, c.Rule, c.Checks = false, &Rule{Required: 3}, []Check{{Name: "broken"}}
	v := Of(c, at("10:10"))
	if !v.Open || v.Reason != gatingv1.WhyOverridden || v.By != "alice" ||
		v.Why != "Overridden by alice: the shop is down" || hm(v.Next) != "11:00" {
		t.Errorf("got %+v", v)
	}
	if v := Of(c, at("11:00")); v.Open {
		t.Errorf("after the window: got %+v", v)
	}
	c.Requests.Close = &Request{At: at("10:05")}
	if v := Of(c, at("10:10")); v.Open {
		t.Errorf("after a close request: got %+v", v)
	}
}

func TestLatestOf10000RequestsApplies(t *testing.T) {
	now := at("10:00")
	for i := range 10_000 {
		now = now.Add(time.Second)
		opens := i%2 == 0
		c := newInput(t, false, time.Hour, nil)
		c.Requests.Open, c.Requests.Close = &Request{At: now}, &Request{At: now.Add(-time.Second)}
		if !opens {
			c.Requests.Open, c.Requests.Close = c.Requests.Close, c.Requests.Open
		}
		if v := Of(c, now); v.Open != opens {
			t.Fatalf("after request %d: open is %t", i, v.Open)
		}
	}
}

// FuzzRequests checks that the state changes at the reported next transition, and not before.
func FuzzRequests(f *testing.F) {
	f.Add(day+"10:00:00Z", day+"11:00:00Z", "1h", int64(3600), true)
	f.Add("x", "2026-11-21T10:00:00.5+14:00", "-1h", int64(-1), false)
	f.Fuzz(func(t *testing.T, open, closing, window string, seconds int64, opened bool) {
		requests, err := ReadRequests(map[string]string{
			gatingv1.OpenRequestedAtAnnotation: open, gatingv1.CloseRequestedAtAnnotation: closing,
			gatingv1.OpenPrefix + gatingv1.WindowSuffix: window,
		})
		if err != nil {
			return
		}
		c := newInput(t, opened, time.Hour, nil)
		c.Requests = requests
		now := time.Unix(1795255200+seconds%1e9, 0).UTC()
		v := Of(c, now)
		if !v.Next.IsZero() && (!v.Next.After(now) || Of(c, v.Next).Open == v.Open || Of(c, v.Next.Add(-1)).
			Open != v.Open) {
			t.Errorf("open is %t at %s; it does not change exactly at the next transition %s", v.Open, now, v.Next)
		}
	})
}
