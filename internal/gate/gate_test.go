package gate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// tenOClock returns the initial time of fake clocks.
func tenOClock() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// newGate creates a gate.
func (s *harness) newGate(name string, spec gatingv1.GateSpec) {
	s.Helper()
	spec.Interval = meta.Duration{Duration: 24 * time.Hour}
	s.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: spec})
}

// gateIs waits until a gate is open or closed, with a reason and a message that contains a text.
func (s *harness) gateIs(name string, open bool, reason, says string) *gatingv1.Gate {
	s.Helper()
	g := &gatingv1.Gate{}
	testenv.Eventually(s, fmt.Sprintf("gate %s is open: %t", name, open), func() error {
		*g = gatingv1.Gate{}
		if err := s.Get(g, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
		if c == nil || (c.Status == metav1.ConditionTrue) != open || c.Reason != reason ||
			!strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v %+v", c, g.Status)
		}
		return nil
	})
	return g
}

func openBy(g *meta.Time) string {
	if g == nil {
		return ""
	}
	return stamp(g.Time)
}

func TestGateOpensForWindow(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(tenOClock())
	s := newHarness(t, func(o *options.Options) { o.Clock = clock })
	createWindows(s)
	s.gateIs("window", false, "ReconciliationSucceeded", "Gate closed by default")
	s.gateIs("freeze", true, "ReconciliationSucceeded", "Gate opened by default")
	fridays := s.gateIs("fridays", false, "ReconciliationSucceeded", "Gate closed by schedule")
	if next := fridays.Status.NextTransition; next == nil || stamp(next.At.Time) != "2026-11-20T23:00:00Z" ||
		next.State != gatingv1.Opened || fridays.Status.Why.Reason != "Scheduled" {
		t.Errorf("fridays has the status %+v", fridays.Status)
	}

	t.Log("the window of a request")
	s.AnnotateGate("window", map[string]any{gatingv1.OpenRequestedAtAnnotation: stamp(clock.Now())})
	s.AnnotateGate("freeze", map[string]any{gatingv1.CloseRequestedAtAnnotation: stamp(clock.Now())})
	g := s.gateIs("window", true, "ReconciliationSucceeded", "Gate scheduled for closing at 2026-11-20T11:00:00Z")
	if openBy(g.Status.RequestedAt) != "2026-11-20T10:00:00Z" ||
		openBy(g.Status.ResetToDefaultAt) != "2026-11-20T11:00:00Z" {
		t.Errorf("status is %+v", g.Status)
	}
	s.gateIs("freeze", false, "ReconciliationSucceeded", "Gate scheduled for opening at 2026-11-21T10:00:00Z")
	clock.Step(time.Hour - time.Second)
	s.AnnotateGate("freeze", map[string]any{gatingv1.ClosePrefix + gatingv1.ReasonSuffix: "maintenance"})
	s.gateIs("window", true, "ReconciliationSucceeded", "Gate scheduled for closing at")
	clock.Step(time.Second)
	g = s.gateIs("window", false, "ReconciliationSucceeded", "Gate closed by default")
	if openBy(g.Status.RequestedAt) != "2026-11-20T10:00:00Z" ||
		openBy(g.Status.ResetToDefaultAt) != "2026-11-20T11:00:00Z" {
		t.Errorf("status is %+v", g.Status)
	}

	t.Log("closed ahead of time")
	s.AnnotateGate("window", map[string]any{gatingv1.OpenRequestedAtAnnotation: stamp(clock.Now())})
	s.gateIs("window", true, "ReconciliationSucceeded", "Gate scheduled for closing at 2026-11-20T12:00:00Z")
	clock.Step(10 * time.Minute)
	s.AnnotateGate("window", map[string]any{gatingv1.CloseRequestedAtAnnotation: stamp(clock.Now())})
	g = s.gateIs("window", false, "ReconciliationSucceeded", "Gate close requested")
	if openBy(g.Status.RequestedAt) != "2026-11-20T11:10:00Z" ||
		openBy(g.Status.ResetToDefaultAt) != "2026-11-20T11:10:00Z" {
		t.Errorf("status is %+v", g.Status)
	}
	checkHistory(t, g)

	t.Log("the controller was stopped")
	s.Stop()
	s.AnnotateGate("window", map[string]any{gatingv1.OpenRequestedAtAnnotation: stamp(clock.Now().Add(time.Minute))})
	clock.Step(24 * time.Hour)
	s.Start()
	g = s.gateIs("window", false, "ReconciliationSucceeded", "Gate closed by default")
	if openBy(g.Status.ResetToDefaultAt) != "2026-11-20T12:11:00Z" {
		t.Errorf("status is %+v", g.Status)
	}
	s.gateIs("freeze", true, "ReconciliationSucceeded", "Gate opened by default")
	s.gateIs("fridays", true, "ReconciliationSucceeded", "Gate opened by default")
	s.recorded("GateOpened", "Gate opened from")
	s.recorded("GateClosed", "Gate closed by default")
}

// createWindows creates gates with windows and schedules.
func createWindows(s *harness) {
	s.newGate("window", gatingv1.GateSpec{Default: gatingv1.Closed, Window: &meta.Duration{Duration: time.Hour}})
	s.newGate("freeze", gatingv1.GateSpec{Default: gatingv1.Opened, Window: &meta.Duration{Duration: 24 * time.Hour}})
	s.newGate("fridays", gatingv1.GateSpec{Default: gatingv1.Opened, Schedule: []gatingv1.ScheduleEntry{{
		Name: "no deploy Fridays", State: gatingv1.Closed, Cron: "0 0 * * 5",
		Duration: &meta.Duration{Duration: 24 * time.Hour}, TimeZone: "Europe/Berlin",
	}}})
}

// checkHistory checks the transitions of the gate, newest first.
func checkHistory(t *testing.T, g *gatingv1.Gate) {
	t.Helper()
	var turns []string
	for _, h := range g.Status.History {
		turns = append(turns, string(h.State)+" "+h.Reason)
		if h.Reason == "Requested" && h.From == "" {
			t.Errorf("transition to %s has no origin (From is empty)", h.State)
		}
	}
	if want := []string{"closed Requested", "opened Requested", "closed Default", "opened Requested",
		"closed Default"}; !slices.Equal(turns, want) {
		t.Errorf("history: %q, want %q", turns, want)
	}
}

// recorded waits for an event with a reason and a note that contains a text.
func (s *harness) recorded(reason, says string) {
	s.Helper()
	testenv.Eventually(s, "an event "+reason, func() error {
		events := &corev1.EventList{}
		if err := s.Client.List(s.Context(), events, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events contains %q", len(events.Items), says)
	})
}

func TestInvalidGatesStayClosed(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	spec := gatingv1.GateSpec{Default: gatingv1.Opened}
	entry := gatingv1.ScheduleEntry{State: gatingv1.Opened, Cron: "0 0 31 2 *",
		Duration: &meta.Duration{Duration: time.Hour}}
	never, mars := spec, spec
	never.Schedule = []gatingv1.ScheduleEntry{entry}
	entry.Cron, entry.TimeZone = "0 0 * * *", "Mars/Olympus"
	mars.Schedule = []gatingv1.ScheduleEntry{entry}
	bad := spec
	bad.Checks = []gatingv1.Check{{Name: "bad",
		Object: &gatingv1.ObjectCheck{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Expression: "object."}}}
	for name, spec := range map[string]gatingv1.GateSpec{"never": never, "mars": mars, "bad": bad, "asked": spec,
		"twice": spec} {
		s.newGate(name, spec)
	}
	for _, other := range []string{"one", "two"} {
		circle := spec
		circle.Checks = []gatingv1.Check{{Name: "other", Object: &gatingv1.ObjectCheck{
			APIVersion: gatingv1.GroupVersion.String(), Kind: "Gate",
			Name:       map[string]string{"one": "two", "two": "one"}[other],
			Expression: "object.status.conditions.exists(c, c.type == 'Opened' && c.status == 'True')",
		}}}
		s.newGate(other, circle)
	}
	s.gateIs("never", false, "InvalidSchedule", "never fires")
	s.gateIs("mars", false, "InvalidSchedule", `"Mars/Olympus" is unknown`)
	s.gateIs("bad", false, "InvalidCheck", "check 'bad' is invalid")
	s.gateIs("one", false, "CheckCycle", "form a cycle")
	s.gateIs("two", false, "CheckCycle", "form a cycle")
	s.gateIs("asked", true, "ReconciliationSucceeded", "Gate opened by default")
	s.AnnotateGate("asked", map[string]any{gatingv1.OpenRequestedAtAnnotation: "soon"})
	s.gateIs("asked", false, "InvalidRequest", `"soon", which is not a valid time`)
	s.AnnotateGate("asked", map[string]any{gatingv1.OpenRequestedAtAnnotation: nil})
	s.gateIs("asked", true, "ReconciliationSucceeded", "Gate opened by default")
	now := stamp(time.Now())
	s.AnnotateGate("twice", map[string]any{gatingv1.OpenRequestedAtAnnotation: now,
		gatingv1.CloseRequestedAtAnnotation: now})
	g := s.gateIs("twice", false, "InvalidRequest", "at the same time")
	if !apimeta.IsStatusConditionTrue(g.Status.Conditions, "Stalled") {
		t.Errorf("conditions are %+v", g.Status.Conditions)
	}
}

func TestGateChecks(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusServiceUnavailable)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		case "/hangs":
			<-r.Context().Done()
		case "/api/v1/query":
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[`+
				`{"metric":{},"value":[1,"0.%d"]}]}}`, status.Load()/100)
		default:
			w.WriteHeader(int(status.Load()))
		}
	}))
	t.Cleanup(endpoint.Close)
	s := newHarness(t, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	every := &meta.Duration{Duration: time.Second}
	check := func(c gatingv1.Check) gatingv1.GateSpec {
		c.Name, c.Interval = "it", every
		return gatingv1.GateSpec{Default: gatingv1.Opened, Checks: []gatingv1.Check{c}}
	}
	web := func(path string) gatingv1.Check {
		return gatingv1.Check{HTTP: &gatingv1.HTTPCheck{URL: endpoint.URL + path}}
	}
	hangs := web("/hangs")
	hangs.Timeout = &meta.Duration{Duration: 500 * time.Millisecond}
	object := func(namespace, kind, name string) gatingv1.Check {
		return gatingv1.Check{Object: &gatingv1.ObjectCheck{APIVersion: "v1", Kind: kind, Name: name,
			Namespace: namespace, Expression: "object.data.k == '1'"}}
	}
	for name, c := range map[string]gatingv1.Check{
		"web": web("/"), "metadata": web("/metadata"), "hangs": hangs, "object": object("", "ConfigMap", "state"),
		"other": object("kube-system", "ConfigMap", "state"), "kindless": object("", "Spaceship", "state"),
		"numbers": {Prometheus: &gatingv1.PrometheusCheck{Address: endpoint.URL, Query: "errors", Below: "0.4"}},
	} {
		s.newGate(name, check(c))
	}
	slow := check(web("/"))
	slow.Checks[0].For = &meta.Duration{Duration: 10 * time.Hour}
	s.newGate("slow", slow)

	checksFail(t, s)

	t.Log("the checks pass")
	status.Store(http.StatusNoContent)
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "reader"}})
	s.GrantAll("default")
	s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "state"},
		Data: map[string]string{"k": "1"}})
	for _, name := range []string{"web", "object", "numbers"} {
		s.gateIs(name, true, "ReconciliationSucceeded", "Gate opened by default")
	}
	checkIsPending(t, s)

	t.Log("the checks fail")
	status.Store(http.StatusInternalServerError)
	s.gateIs("web", false, "CheckFailed", "check 'it' does not pass")
}

// checksFail waits until the gates are closed by their checks.
func checksFail(t *testing.T, s *harness) {
	t.Helper()
	for name, says := range map[string]string{
		"web": "status 503", "metadata": "link-local", "hangs": "", "object": "is not allowed to get ConfigMap 'state'",
		"other":    "cross-namespace references have been blocked",
		"kindless": "no kind Spaceship", "numbers": "returned 0.5, which is not below 0.4", "slow": "status 503",
	} {
		testenv.Eventually(t, name+" is closed", func() error {
			g := &gatingv1.Gate{}
			if err := s.Get(g, name); err != nil {
				return err
			}
			c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "CheckFailed" ||
				len(g.Status.Checks) != 1 ||
				!strings.Contains(g.Status.Checks[0].Message, says) || !strings.Contains(g.Status.Why.Message, says) {
				return fmt.Errorf("%+v", g.Status)
			}
			return nil
		})
	}
}

// checkIsPending waits until a check passes that must pass for longer.
func checkIsPending(t *testing.T, s *harness) {
	t.Helper()
	testenv.Eventually(t, "slow reports the running check", func() error {
		g := &gatingv1.Gate{}
		if err := s.Get(g, "slow"); err != nil {
			return err
		}
		if c := g.Status.Checks; len(c) != 1 || !c[0].Passed || c[0].Holds ||
			!strings.Contains(c[0].Message, "but not yet for ") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}
