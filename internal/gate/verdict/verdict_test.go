package verdict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
)

// day is a Saturday on which all of this happens.
const day = "2026-11-21T"

func clock(t testing.TB, hm string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, day+hm+":00Z")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// asked are annotations: "open 10:00" and so on.
func asked(requests ...string) map[string]string {
	annotations := map[string]string{}
	for _, r := range requests {
		verb, at, _ := strings.Cut(r, " ")
		annotations[verb+".gate.fluxcd.io/requestedAt"] = day + at + ":00Z"
	}
	return annotations
}

func newCase(t testing.TB, opened bool, window time.Duration, annotations map[string]string,
	entries ...calendar.Entry) Case {
	t.Helper()
	c := Case{Opened: opened, Window: window, Overridable: true}
	var err error
	if c.Requests, err = ReadRequests(annotations); err != nil {
		t.Fatal(err)
	}
	if c.Calendar, err = calendar.New(entries); err != nil {
		t.Fatal(err)
	}
	return c
}

func hm(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("15:04")
}

// TestOwnersGates is the owner's document, sentence by sentence.
func TestOwnersGates(t *testing.T) {
	const hour = time.Hour
	until := func(word, at string) string { return "Gate scheduled for " + word + " at " + day + at + ":00Z" }
	for name, c := range map[string]struct {
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
		"on creation it is closed by default": {false, hour, nil, "10:00", false, "Gate closed by default", "",
			"", ""},
		"on creation it is opened by default": {true, hour, nil, "10:00", true, "Gate opened by default", "",
			"", ""},
		"a request opens it for the window": {false, hour, asked("open 10:00"), "10:05", true,
			until("closing", "11:00"), "10:00", "11:00", "11:00"},
		"counted from the time of the request": {false, hour, asked("open 10:00"), "10:59", true,
			until("closing", "11:00"), "10:00", "11:00", "11:00"},
		"then it is back to its default": {false, hour, asked("open 10:00"), "11:00", false,
			"Gate closed by default", "10:00", "11:00", ""},
		"and stays so after the controller was off": {false, hour, asked("open 10:00"), "20:00", false,
			"Gate closed by default", "10:00", "11:00", ""},
		"a close ends it at once": {false, hour, asked("open 10:00", "close 10:20"), "10:20", false,
			"Gate close requested", "10:20", "10:20", ""},
		"and goes on to": {false, hour, asked("open 10:00", "close 10:20"), "20:00", false,
			"Gate close requested", "10:20", "10:20", ""},
		"a close before the request says nothing": {false, hour, asked("open 10:00", "close 09:00"), "10:05", true,
			until("closing", "11:00"), "10:00", "11:00", "11:00"},
		"an opened gate closes for the window": {true, 24 * hour, asked("close 10:00"), "10:00", false,
			"Gate scheduled for opening at 2026-11-22T10:00:00Z", "10:00", "10:00", "10:00"},
		"an open ends that ahead of time": {true, hour, asked("close 10:00", "open 10:30"), "10:30", true,
			"Gate open requested", "10:30", "10:30", ""},
		"then an opened gate is back to default": {true, hour, asked("close 10:00"), "11:00", true,
			"Gate opened by default", "10:00", "11:00", ""},
		"without a window an open holds": {false, 0, asked("open 10:00"), "23:00", true,
			"Gate open requested", "10:00", "", ""},
		"until a close": {false, 0, asked("open 10:00", "close 12:00"), "12:00", false,
			"Gate close requested", "12:00", "12:00", ""},
		"without a window a close holds": {true, 0, asked("close 10:00"), "23:00", false,
			"Gate close requested", "10:00", "", ""},
		"until an open": {true, 0, asked("close 10:00", "open 12:00"), "12:00", true,
			"Gate open requested", "12:00", "12:00", ""},
		"a time to come does nothing yet": {false, hour, asked("open 10:00"), "09:59", false,
			"Gate closed by default", "", "", "10:00"},
		"a close to come ends an open": {false, hour, asked("open 10:00", "close 10:30"), "10:10", true,
			until("closing", "10:30"), "10:00", "10:30", "10:30"},
		"a close to come ends one without an end": {false, 0, asked("open 10:00", "close 18:00"), "10:10", true,
			until("closing", "18:00"), "10:00", "18:00", "18:00"},
		"a close to come that is too late": {false, hour, asked("open 10:00", "close 18:00"), "10:10", true,
			until("closing", "11:00"), "10:00", "11:00", "11:00"},
		"an open to come ends a close": {true, 4 * hour, asked("close 10:00", "open 12:00"), "10:10",
			false, until("opening", "12:00"), "10:00", "12:00", "12:00"},
		"the latest of many wins": {false, hour, asked("open 10:00", "close 10:10", "open 10:20"),
			"10:25", true, until("closing", "11:20"), "10:20", "11:20", "11:20"},
		"an open on an opened gate": {true, hour, asked("open 10:00"), "10:10", true,
			"Gate open requested", "10:00", "10:00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := Of(newCase(t, c.opened, c.window, c.annotations), clock(t, c.now))
			if v.Open != c.open || v.Message != c.message || hm(v.RequestedAt) != c.requested ||
				hm(v.ResetAt) != c.reset || hm(v.Next) != c.next {
				t.Errorf("got %t %q, requested %s, reset %s, next %s", v.Open, v.Message, hm(v.RequestedAt),
					hm(v.ResetAt), hm(v.Next))
			}
		})
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	signed := func(extra map[string]string) map[string]string {
		a := asked("override 10:00")
		for k, v := range extra {
			a["override.gate.fluxcd.io/"+k] = v
		}
		return a
	}
	for says, annotations := range map[string]map[string]string{
		"at the same time": asked("open 10:00", "close 10:00"),
		"at the same time, 2026-11-21T09:00:00Z": {"open.gate.fluxcd.io/requestedAt": "2026-11-21T10:00:00+01:00",
			"close.gate.fluxcd.io/requestedAt": "2026-11-21T09:00:00Z"},
		`"tomorrow", which is no time`:     {"open.gate.fluxcd.io/requestedAt": "tomorrow"},
		`"", which is no time`:             {"close.gate.fluxcd.io/requestedAt": ""},
		`"2026-13-01T00:00:00Z", which is`: {"open.gate.fluxcd.io/requestedAt": "2026-13-01T00:00:00Z"},
		`"0000-01-01T00:00:00Z", which is`: {"open.gate.fluxcd.io/requestedAt": "0000-01-01T00:00:00Z"},
		`"-1h", which is no window`: {"open.gate.fluxcd.io/requestedAt": day + "10:00:00Z",
			"open.gate.fluxcd.io/window": "-1h"},
		`"2562048h", which is no window`: {"open.gate.fluxcd.io/requestedAt": day + "10:00:00Z",
			"open.gate.fluxcd.io/window": "2562048h"},
		`"99999h", which is no window`: {"close.gate.fluxcd.io/requestedAt": day + "10:00:00Z",
			"close.gate.fluxcd.io/window": "99999h"},
		"takes a reason":           signed(map[string]string{"requestedBy": day + "10:00:00Z alice"}),
		"and the name of who asks": signed(map[string]string{"reason": "fire"}),
		"for this very time": signed(map[string]string{"reason": "fire", "requestedBy": day +
			"09:00:00Z alice"}),
	} {
		_, err := ReadRequests(annotations)
		if f := fault.As(err); f == nil || f.Reason != gatingv1.InvalidRequestReason || !f.Terminal ||
			!strings.Contains(f.Error(), says) {
			t.Errorf("%v: got %v, want one that says %q", annotations, err, says)
		}
	}
}

func TestCalendarAndRequests(t *testing.T) {
	freeze := calendar.Entry{Name: "weekend", Cron: "0 9 * * 6", Duration: 8 * time.Hour}
	train := calendar.Entry{Name: "train", Opens: true, Cron: "0 12 * * *", Duration: time.Hour}
	for name, c := range map[string]struct {
		opened      bool
		strict      bool
		annotations map[string]string
		entries     []calendar.Entry
		now         string
		want        string // state, reason, next
	}{
		"frozen": {true, false, nil, []calendar.Entry{freeze}, "10:00",
			"closed Scheduled 17:00"},
		"not yet frozen": {true, false, nil, []calendar.Entry{freeze}, "08:00",
			"opened Default 09:00"},
		"a request wins over the freeze": {true, false, asked("open 10:00"), []calendar.Entry{freeze},
			"10:10", "opened Requested 11:00"},
		"for its window": {true, false, asked("open 10:00"), []calendar.Entry{freeze},
			"11:00", "closed Scheduled 17:00"},
		"but not if the freeze is strict": {true, true, asked("open 10:00"), []calendar.Entry{freeze}, "10:10",
			"closed Scheduled 17:00"},
		"strict only while it is in force": {false, true, asked("open 08:00"), []calendar.Entry{freeze},
			"08:10", "opened Requested 09:00"},
		"the train opens": {false, false, nil, []calendar.Entry{train}, "12:30",
			"opened Scheduled 13:00"},
		"a request stops the train": {false, false, asked("close 12:20"), []calendar.Entry{train},
			"12:30", "closed Requested 12:00"},
		"nothing stops a strict train": {false, true, asked("close 12:20"), []calendar.Entry{train},
			"12:30", "opened Scheduled 13:00"},
		"closed wins over opened": {false, false, nil, []calendar.Entry{train, freeze}, "12:30",
			"closed Scheduled 12:00"},
		"a request of yesterday holds no train up": {false, false, asked("close 02:00"), []calendar.Entry{train},
			"12:30", "opened Scheduled 13:00"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCase(t, c.opened, time.Hour, c.annotations, c.entries...)
			k.Overridable = !c.strict
			v := Of(k, clock(t, c.now))
			if got := fmt.Sprint(State(v.Open), " ", v.Reason, " ", hm(v.Next)); got != c.want {
				t.Errorf("got %q (%s), want %q", got, v.Message, c.want)
			}
		})
	}
}

func TestApprovals(t *testing.T) {
	at := func(hm string) time.Time { return clock(t, hm) }
	alice := Approval{Name: "a", User: "alice", Groups: []string{"managers"}, At: at("10:00")}
	bob := Approval{Name: "b", User: "bob", At: at("10:20")}
	with := func(a Approval, change func(*Approval)) Approval { change(&a); return a }
	rule := Rule{Required: 2, Users: []string{"alice", "bob", "carol"}, ValidFor: time.Hour}
	trains := []calendar.Entry{{Opens: true, Cron: "0 12 * * *", Duration: time.Hour}}
	freeze := []calendar.Entry{{Cron: "0 9 * * 6", Duration: 8 * time.Hour}}
	for name, c := range map[string]struct {
		rule        Rule
		approvals   []Approval
		annotations map[string]string
		entries     []calendar.Entry
		now         string
		want        string // state, reason, revisions, next
	}{
		"nobody approved":   {rule, nil, nil, nil, "10:30", "closed Default [] "},
		"one is not enough": {rule, []Approval{alice}, nil, nil, "10:30", "closed Default [] "},
		"two are": {rule, []Approval{alice, bob}, nil, nil, "10:30",
			"opened Approved [] 11:00"},
		"until the first one expires": {rule, []Approval{alice, bob}, nil, nil, "11:00", "closed Default [] "},
		"the same person counts once": {rule,
			[]Approval{alice, with(alice, func(a *Approval) { a.Name = "a2" })}, nil, nil, "10:30",
			"closed Default [] "},
		"a stranger does not count": {rule,
			[]Approval{alice, with(bob, func(a *Approval) { a.User = "mallory" })}, nil, nil, "10:30",
			"closed Default [] "},
		"a member of a group does": {Rule{Required: 1, Groups: []string{"managers"}}, []Approval{alice},
			nil, nil, "10:30", "opened Approved [] "},
		"no member of a group does not": {Rule{Required: 1, Groups: []string{"managers"}}, []Approval{bob}, nil,
			nil, "10:30", "closed Default [] "},
		"everybody may where nobody is named": {Rule{Required: 1}, []Approval{bob}, nil, nil, "23:30",
			"opened Approved [] "},
		"withdrawn": {rule,
			[]Approval{with(alice, func(a *Approval) { a.Withdrawn = true }), bob}, nil, nil, "10:30",
			"closed Default [] "},
		"expired by its own word": {rule,
			[]Approval{with(alice, func(a *Approval) { a.ExpiresAt = at("10:25") }), bob}, nil, nil, "10:30",
			"closed Default [] "},
		"good for longer by its own word": {rule,
			[]Approval{with(alice, func(a *Approval) { a.ExpiresAt = at("20:00") }), bob}, nil, nil, "11:10",
			"opened Approved [] 11:20"},
		"nobody vouches for it": {rule,
			[]Approval{with(alice, func(a *Approval) { a.Distrust = "no" }), bob}, nil, nil, "10:30",
			"closed Default [] "},
		"for a revision": {rule, []Approval{with(alice, func(a *Approval) { a.Revision = "r1" }),
			with(bob, func(a *Approval) { a.Revision = "r1" })}, nil, nil, "10:30", "opened Approved [r1] 11:00"},
		"for two revisions": {rule, []Approval{with(alice, func(a *Approval) { a.Revision = "r1" }),
			with(bob, func(a *Approval) { a.Revision = "r2" })}, nil, nil, "10:30", "closed Default [] "},
		"one for any makes up for both": {rule,
			[]Approval{with(alice, func(a *Approval) { a.Revision = "r1" }), bob}, nil, nil, "10:30",
			"opened Approved [r1] 11:00"},
		"a request does not do without": {rule, []Approval{alice}, asked("open 10:10"), nil, "10:30",
			"closed ApprovalRequired [] "},
		"a request with approvals": {rule, []Approval{alice, bob}, asked("open 10:10"), nil, "10:30",
			"opened Requested [] 11:00"},
		"a close takes back what was approved": {rule, []Approval{alice, bob}, asked("close 10:25"), nil, "10:30",
			"closed Requested [] "},
		"what is approved after it counts": {rule, []Approval{with(alice, func(a *Approval) { a.At = at("10:26") }),
			with(bob, func(a *Approval) { a.At = at("10:27") })}, asked("close 10:25"), nil, "10:30",
			"opened Approved [] 11:26"},
		"a freeze is not approved away": {rule, []Approval{alice, bob}, nil, freeze, "10:30",
			"closed Scheduled [] "},
		"approved before the train": {rule, []Approval{alice, bob}, nil, trains, "10:30",
			"closed Default [] "},
		"the train without approvals": {rule, []Approval{alice}, nil, trains, "12:30",
			"closed ApprovalRequired [] "},
		"the train with approvals": {Rule{Required: 2}, []Approval{alice, bob}, nil, trains, "12:30",
			"opened Scheduled [] 13:00"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCase(t, false, time.Hour, c.annotations, c.entries...)
			k.Rule, k.Approvals = &c.rule, c.approvals
			v := Of(k, clock(t, c.now))
			if got := fmt.Sprint(State(v.Open), " ", v.Reason, " ", v.Revisions, " ", hm(v.Next)); got != c.want {
				t.Errorf("got %q (%s), want %q", got, v.Message, c.want)
			}
			counted := slices.ContainsFunc(v.Approvals,
				func(o gatingv1.ObservedApproval) bool { return o.Counts != (o.Message == "") })
			if len(v.Approvals) != len(c.approvals) || counted {
				t.Errorf("approvals are shown as %+v", v.Approvals)
			}
		})
	}
}

func TestOpenForARevision(t *testing.T) {
	annotations := asked("open 10:00")
	annotations[gatingv1.OpenRevisionAnnotation] = "main@sha1:abc"
	c := newCase(t, false, time.Hour, annotations)
	if v := Of(c, clock(t, "10:10")); !v.Open || !slices.Equal(v.Revisions, []string{"main@sha1:abc"}) {
		t.Errorf("got %+v", v)
	}
	c.Rule = &Rule{Required: 1}
	c.Approvals = []Approval{{User: "alice", At: clock(t, "10:00"), Revision: "main@sha1:def"}}
	if v := Of(c, clock(t, "10:10")); v.Open || v.Reason != gatingv1.WhyApprovalRequired || v.Revisions != nil {
		t.Errorf("another revision was approved than asked for: got %+v", v)
	}
}

func TestChecksKeepItClosed(t *testing.T) {
	c := newCase(t, true, time.Hour, nil)
	c.Checks = []Check{{Name: "good", Holds: true}, {Name: "errors", Message: "the query gives 7"}}
	v := Of(c, clock(t, "10:10"))
	if v.Open || v.Reason != gatingv1.WhyCheckFailed || v.Message != "Gate closed: check 'errors' does not hold" ||
		!strings.Contains(v.Why, "gives 7") {
		t.Errorf("got %+v", v)
	}
	c.Checks[1].Holds = true
	if v := Of(c, clock(t, "10:10")); !v.Open {
		t.Errorf("got %+v", v)
	}
}

func TestBreakingTheGlass(t *testing.T) {
	annotations := asked("override 10:00", "open 09:00")
	annotations["override.gate.fluxcd.io/reason"] = "the shop is down"
	annotations["override.gate.fluxcd.io/requestedBy"] = day + "10:00:00Z alice"
	c := newCase(t, false, time.Hour, annotations, calendar.Entry{Cron: "0 0 * * *", Duration: 24 * time.Hour})
	c.Overridable, c.Rule, c.Checks = false, &Rule{Required: 3}, []Check{{Name: "broken"}}
	v := Of(c, clock(t, "10:10"))
	if !v.Open || v.Reason != gatingv1.WhyOverridden || v.By != "alice" ||
		v.Why != "Overridden by alice: the shop is down" || hm(v.Next) != "11:00" {
		t.Errorf("got %+v", v)
	}
	if v := Of(c, clock(t, "11:00")); v.Open {
		t.Errorf("after its window: got %+v", v)
	}
	c.Requests.Close = &Request{At: clock(t, "10:05")}
	if v := Of(c, clock(t, "10:10")); v.Open {
		t.Errorf("after a close: got %+v", v)
	}
}

func TestTenThousandFlips(t *testing.T) {
	now := clock(t, "10:00")
	for i := range 10_000 {
		now = now.Add(time.Second)
		opens := i%2 == 0
		c := newCase(t, false, time.Hour, nil)
		c.Requests.Open, c.Requests.Close = &Request{At: now}, &Request{At: now.Add(-time.Second)}
		if !opens {
			c.Requests.Open, c.Requests.Close = c.Requests.Close, c.Requests.Open
		}
		if v := Of(c, now); v.Open != opens {
			t.Fatalf("after flip %d it is %t", i, v.Open)
		}
	}
}

// FuzzRequests reads any annotations, and checks that a verdict is the same whoever asks, and that the clock
// alone brings what it says.
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
		c := newCase(t, opened, time.Hour, nil)
		c.Requests = requests
		now := time.Unix(1795255200+seconds%1e9, 0).UTC()
		v := Of(c, now)
		if !v.Next.IsZero() && (!v.Next.After(now) || Of(c, v.Next).Open == v.Open || Of(c, v.Next.Add(-1)).
			Open != v.Open) {
			t.Errorf("at %s it is %t, and so at its next transition %s", now, v.Open, v.Next)
		}
	})
}
