package manager

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// at is a request's time, by the fake clock that begins at ten.
func tenOClock() time.Time { return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// newGate makes a gate, and leaves it to the controller.
func (s *system) newGate(name string, spec gatingv1.GateSpec) {
	s.Helper()
	spec.Interval = metav1.Duration{Duration: 24 * time.Hour}
	s.create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: spec})
}

// gateIs waits until a gate is open or not, for a reason and with a message that contains a text.
func (s *system) gateIs(name string, open bool, reason, says string) *gatingv1.Gate {
	s.Helper()
	g := &gatingv1.Gate{}
	testenv.Eventually(s, fmt.Sprintf("gate %s is open: %t", name, open), func() error {
		*g = gatingv1.Gate{}
		if err := s.get(g, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
		if c == nil || (c.Status == metav1.ConditionTrue) != open || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v %+v", c, g.Status)
		}
		return nil
	})
	return g
}

func openBy(g *metav1.Time) string {
	if g == nil {
		return ""
	}
	return stamp(g.Time)
}

func TestGateOpensForAWindow(t *testing.T) {
	clock := testingclock.NewFakeClock(tenOClock())
	s := newSystem(t, func(o *Options) { o.Clock = clock })
	s.newGate("window", gatingv1.GateSpec{Default: gatingv1.Closed, Window: &metav1.Duration{Duration: time.Hour}})
	s.newGate("freeze", gatingv1.GateSpec{Default: gatingv1.Opened, Window: &metav1.Duration{Duration: 24 * time.Hour}})
	s.newGate("fridays", gatingv1.GateSpec{Default: gatingv1.Opened, Schedule: []gatingv1.ScheduleEntry{{
		Name: "no deploy Fridays", State: gatingv1.Closed, Cron: "0 0 * * 5", Duration: &metav1.Duration{Duration: 24 * time.Hour}, TimeZone: "Europe/Berlin",
	}}})
	s.gateIs("window", false, "ReconciliationSucceeded", "Gate closed by default")
	s.gateIs("freeze", true, "ReconciliationSucceeded", "Gate opened by default")
	fridays := s.gateIs("fridays", false, "ReconciliationSucceeded", "Gate closed by schedule")
	if next := fridays.Status.NextTransition; next == nil || stamp(next.At.Time) != "2026-11-20T23:00:00Z" || next.State != gatingv1.Opened || fridays.Status.Why.Reason != "Scheduled" {
		t.Errorf("fridays has the status %+v", fridays.Status)
	}

	t.Log("the window of a request")
	s.ask("window", map[string]any{gatingv1.OpenRequestedAtAnnotation: stamp(clock.Now())})
	s.ask("freeze", map[string]any{gatingv1.CloseRequestedAtAnnotation: stamp(clock.Now())})
	g := s.gateIs("window", true, "ReconciliationSucceeded", "Gate scheduled for closing at 2026-11-20T11:00:00Z")
	if openBy(g.Status.RequestedAt) != "2026-11-20T10:00:00Z" || openBy(g.Status.ResetToDefaultAt) != "2026-11-20T11:00:00Z" {
		t.Errorf("status is %+v", g.Status)
	}
	s.gateIs("freeze", false, "ReconciliationSucceeded", "Gate scheduled for opening at 2026-11-21T10:00:00Z")
	clock.Step(time.Hour - time.Second)
	s.ask("freeze", map[string]any{gatingv1.ClosePrefix + gatingv1.ReasonSuffix: "maintenance"})
	s.gateIs("window", true, "ReconciliationSucceeded", "Gate scheduled for closing at")
	clock.Step(time.Second)
	g = s.gateIs("window", false, "ReconciliationSucceeded", "Gate closed by default")
	if openBy(g.Status.RequestedAt) != "2026-11-20T10:00:00Z" || openBy(g.Status.ResetToDefaultAt) != "2026-11-20T11:00:00Z" {
		t.Errorf("status is %+v", g.Status)
	}

	t.Log("closed ahead of time")
	s.ask("window", map[string]any{gatingv1.OpenRequestedAtAnnotation: stamp(clock.Now())})
	s.gateIs("window", true, "ReconciliationSucceeded", "Gate scheduled for closing at 2026-11-20T12:00:00Z")
	clock.Step(10 * time.Minute)
	s.ask("window", map[string]any{gatingv1.CloseRequestedAtAnnotation: stamp(clock.Now())})
	g = s.gateIs("window", false, "ReconciliationSucceeded", "Gate close requested")
	if openBy(g.Status.RequestedAt) != "2026-11-20T11:10:00Z" || openBy(g.Status.ResetToDefaultAt) != "2026-11-20T11:10:00Z" {
		t.Errorf("status is %+v", g.Status)
	}
	var turns []string
	for _, h := range g.Status.History {
		turns = append(turns, string(h.State)+" "+h.Reason)
		if h.Reason == "Requested" && h.From == "" {
			t.Errorf("nobody knows from where it was %s", h.State)
		}
	}
	if want := []string{"closed Requested", "opened Requested", "closed Default", "opened Requested", "closed Default"}; !slices.Equal(turns, want) {
		t.Errorf("the history is %q, want %q", turns, want)
	}

	t.Log("a controller that was down")
	s.stop()
	s.ask("window", map[string]any{gatingv1.OpenRequestedAtAnnotation: stamp(clock.Now().Add(time.Minute))})
	clock.Step(24 * time.Hour)
	s.start()
	g = s.gateIs("window", false, "ReconciliationSucceeded", "Gate closed by default")
	if openBy(g.Status.ResetToDefaultAt) != "2026-11-20T12:11:00Z" {
		t.Errorf("status is %+v", g.Status)
	}
	s.gateIs("freeze", true, "ReconciliationSucceeded", "Gate opened by default")
	s.gateIs("fridays", true, "ReconciliationSucceeded", "Gate opened by default")
	s.recorded("GateOpened", "Gate opened from")
	s.recorded("GateClosed", "Gate closed: Gate closed by default")
}

// recorded waits for an event of the namespace.
func (s *system) recorded(reason, says string) {
	s.Helper()
	testenv.Eventually(s, "an event "+reason, func() error {
		events := &corev1.EventList{}
		if err := s.client.List(s.Context(), events, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("none of %d says %q", len(events.Items), says)
	})
}

func TestGatesThatCannotBeFollowedStayClosed(t *testing.T) {
	s := newSystem(t)
	spec := gatingv1.GateSpec{Default: gatingv1.Opened}
	entry := gatingv1.ScheduleEntry{State: gatingv1.Opened, Cron: "0 0 31 2 *", Duration: &metav1.Duration{Duration: time.Hour}}
	never, mars := spec, spec
	never.Schedule = []gatingv1.ScheduleEntry{entry}
	entry.Cron, entry.TimeZone = "0 0 * * *", "Mars/Olympus"
	mars.Schedule = []gatingv1.ScheduleEntry{entry}
	bad := spec
	bad.Checks = []gatingv1.Check{{Name: "bad", Object: &gatingv1.ObjectCheck{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Expression: "object."}}}
	for name, spec := range map[string]gatingv1.GateSpec{"never": never, "mars": mars, "bad": bad, "asked": spec, "twice": spec} {
		s.newGate(name, spec)
	}
	for _, other := range []string{"one", "two"} {
		circle := spec
		circle.Checks = []gatingv1.Check{{Name: "other", Object: &gatingv1.ObjectCheck{
			APIVersion: gatingv1.GroupVersion.String(), Kind: "Gate", Name: map[string]string{"one": "two", "two": "one"}[other],
			Expression: "object.status.conditions.exists(c, c.type == 'Opened' && c.status == 'True')",
		}}}
		s.newGate(other, circle)
	}
	s.gateIs("never", false, "InvalidSchedule", "never fires")
	s.gateIs("mars", false, "InvalidSchedule", `"Mars/Olympus" is unknown`)
	s.gateIs("bad", false, "InvalidCheck", "check 'bad' cannot be tried")
	s.gateIs("one", false, "CheckCycle", "lead back to it")
	s.gateIs("two", false, "CheckCycle", "lead back to it")
	s.gateIs("asked", true, "ReconciliationSucceeded", "Gate opened by default")
	s.ask("asked", map[string]any{gatingv1.OpenRequestedAtAnnotation: "soon"})
	s.gateIs("asked", false, "InvalidRequest", `"soon", which is no time`)
	s.ask("asked", map[string]any{gatingv1.OpenRequestedAtAnnotation: nil})
	s.gateIs("asked", true, "ReconciliationSucceeded", "Gate opened by default")
	now := stamp(time.Now())
	s.ask("twice", map[string]any{gatingv1.OpenRequestedAtAnnotation: now, gatingv1.CloseRequestedAtAnnotation: now})
	g := s.gateIs("twice", false, "InvalidRequest", "at the same time")
	if !apimeta.IsStatusConditionTrue(g.Status.Conditions, "Stalled") {
		t.Errorf("conditions are %+v", g.Status.Conditions)
	}
}

// policies puts the policies in place, and waits until they are enforced.
func (s *system) policies() {
	s.Helper()
	objects, err := config.Policies()
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range objects {
		if err := s.client.Create(s.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			s.Fatal(err)
		}
	}
	voucher := &gate.Voucher{Client: s.client, Reader: s.client, Clock: testingclock.NewFakePassiveClock(tenOClock())}
	testenv.Eventually(s, "the policies are enforced", func() error {
		voucher.Clock.(*testingclock.FakePassiveClock).SetTime(voucher.Clock.Now().Add(time.Hour))
		_, err := voucher.Approvals(s.Context(), s.namespace)
		return errors.Join(err, voucher.Requests(s.Context(), s.namespace))
	})
}

// noPolicies takes them away.
func (s *system) noPolicies() {
	s.Helper()
	for _, name := range []string{gate.ApprovalsPolicy, gate.RequestsPolicy} {
		for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}} {
			o.SetName(name)
			if err := s.client.Delete(s.Context(), o); client.IgnoreNotFound(err) != nil {
				s.Fatal(err)
			}
		}
	}
	testenv.Eventually(s, "the policies are enforced no more", func() error {
		return s.client.Create(s.Context(), s.approval("forged", "alice@example.com"), client.DryRunAll)
	})
}

// person is a client of somebody who may do with gates and approvals of the namespace what the verbs say.
func (s *system) person(name string, groups []string, verbs ...string) client.Client {
	s.Helper()
	account := strings.ReplaceAll(name, "@", "-")
	s.create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{gatingv1.GroupVersion.Group}, Resources: []string{"gates", "gateapprovals"}, Verbs: verbs}},
	})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	cfg := rest.CopyConfig(testenv.Cluster(s))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	testenv.Eventually(s, name+" has rights", func() error { // the API server's authorizer lags behind
		return c.List(s.Context(), &gatingv1.GateList{}, client.InNamespace(s.namespace))
	})
	return c
}

func (s *system) approval(name, user string, groups ...string) *gatingv1.GateApproval {
	return &gatingv1.GateApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       gatingv1.GateApprovalSpec{GateRef: meta.LocalObjectReference{Name: "release"}, User: user, Groups: groups},
	}
}

func denied(t *testing.T, err error, says string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want a refusal that says %q", err, says)
	}
}

func TestApprovalsThatCannotBeForged(t *testing.T) {
	s := newSystem(t)
	s.noPolicies()
	s.newGate("release", gatingv1.GateSpec{Default: gatingv1.Closed, Approvals: &gatingv1.Approvals{Required: 2, Users: []string{"alice@example.com"}, Groups: []string{"managers"}}})
	t.Log("without the policy no approval counts")
	s.gateIs("release", false, "PolicyMissing", "Gate closed by default")
	s.create(s.approval("old", "alice@example.com")) // forged, and taken
	s.fails(&gatingv1.Gate{}, "release", "PolicyMissing", "nobody vouches for the names of people")

	s.policies()
	verbs := []string{"get", "list", "create", "update", "patch", "delete"}
	alice := s.person("alice@example.com", nil, verbs...)
	bob := s.person("bob@example.com", []string{"managers", "system:authenticated"}, verbs...)

	t.Log("nobody approves in another's name, or as one of a group that he is not in")
	denied(t, bob.Create(t.Context(), s.approval("forged", "alice@example.com")), "spec.user must be who creates the approval: bob@example.com")
	denied(t, s.client.Create(t.Context(), s.approval("forged", "alice@example.com")), "spec.user must be who creates the approval")
	denied(t, alice.Create(t.Context(), s.approval("forged", "alice@example.com", "managers")), "a group that who creates the approval is not in")

	t.Log("two people who may, once the policy is no longer new")
	probe := s.approval("probe", "alice@example.com")
	testenv.Eventually(t, "seconds have passed", func() error {
		probe.ResourceVersion = ""
		if err := alice.Create(t.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: gate.ApprovalsPolicy}, policy); err != nil {
			return err
		}
		if age := probe.CreationTimestamp.Sub(policy.CreationTimestamp.Time); age < 10*time.Second {
			return fmt.Errorf("the policy is %s old", age)
		}
		return nil
	})
	first := s.approval("alice", "alice@example.com")
	first.Spec.Revision = "main@sha1:abc"
	if err := alice.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := bob.Create(t.Context(), s.approval("bob", "bob@example.com", "managers")); err != nil {
		t.Fatal(err)
	}
	s.annotate(&gatingv1.Gate{}, "release")
	g := s.gateIs("release", true, "ReconciliationSucceeded", "Gate opened by approval")
	if !slices.Equal(g.Status.ApprovedRevisions, []string{"main@sha1:abc"}) || g.Status.History[0].By != "alice@example.com, bob@example.com" {
		t.Errorf("status is %+v", g.Status)
	}
	for _, a := range g.Status.Approvals {
		if a.Counts != (a.Name != "old") {
			t.Errorf("approval %+v", a)
		}
	}

	t.Log("an approval is what it was, until it is withdrawn")
	changed := first.DeepCopy()
	changed.Spec.Revision = "main@sha1:def"
	denied(t, alice.Update(t.Context(), changed), "an approval cannot be changed")
	changed = first.DeepCopy()
	changed.Spec.User = "bob@example.com"
	denied(t, alice.Update(t.Context(), changed), "cannot be changed")
	withdrawn := first.DeepCopy()
	withdrawn.Spec.Withdrawn = true
	if err := alice.Update(t.Context(), withdrawn); err != nil {
		t.Fatal(err)
	}
	s.gateIs("release", false, "ReconciliationSucceeded", "Gate closed by default")
	withdrawn.Spec.Withdrawn = false
	denied(t, alice.Update(t.Context(), withdrawn), "an approval that was withdrawn stays so")
	s.recorded("GateOpened", "for revision main@sha1:abc by alice@example.com, bob@example.com")
}

func TestBreakingTheGlass(t *testing.T) {
	s := newSystem(t)
	s.policies()
	s.newGate("release", gatingv1.GateSpec{Default: gatingv1.Closed, Approvals: &gatingv1.Approvals{Required: 2}})
	s.gateIs("release", false, "ReconciliationSucceeded", "Gate closed by default")
	verbs := []string{"get", "list", "create", "update", "patch"}
	alice, bob := s.person("alice@example.com", nil, append(verbs, "override")...), s.person("bob@example.com", nil, verbs...)
	override := func(c client.Client, change func(annotations map[string]string)) error {
		g := &gatingv1.Gate{}
		if err := s.get(g, "release"); err != nil {
			return err
		}
		before := g.DeepCopy()
		if g.Annotations == nil {
			g.Annotations = map[string]string{}
		}
		change(g.Annotations)
		return c.Patch(s.Context(), g, client.MergeFrom(before), client.FieldOwner("sluice-gate"))
	}
	now := stamp(time.Now())
	complete := func(user string) func(map[string]string) {
		return func(a map[string]string) {
			a[gatingv1.OverrideRequestedAtAnnotation] = now
			a[gatingv1.OverridePrefix+gatingv1.RequestedBySuffix] = now + " " + user
			a[gatingv1.OverridePrefix+gatingv1.ReasonSuffix] = "the shop is down"
		}
	}
	denied(t, override(bob, complete("bob@example.com")), "bob@example.com may not override gates")
	denied(t, override(bob, complete("alice@example.com")), "must name who asks")
	denied(t, override(alice, complete("bob@example.com")), "must name who asks")
	denied(t, override(alice, func(a map[string]string) { a[gatingv1.OverrideRequestedAtAnnotation] = now }), "takes a reason")
	if err := override(alice, complete("alice@example.com")); err != nil {
		t.Fatal(err)
	}
	g := s.gateIs("release", true, "ReconciliationSucceeded", "Gate open requested")
	if h := g.Status.History[0]; h.By != "alice@example.com" || h.Reason != "Overridden" || h.From != "sluice-gate" || !strings.Contains(h.Message, "the shop is down") {
		t.Errorf("the history begins with %+v", h)
	}
	s.recorded("GateOverridden", "by alice@example.com from sluice-gate: Overridden by alice@example.com: the shop is down")

	t.Log("what was asked in her name cannot be changed by another")
	denied(t, override(bob, func(a map[string]string) { a[gatingv1.OverridePrefix+gatingv1.WindowSuffix] = "900h" }), "must name who asks")

	t.Log("everybody may close")
	s.turn("release", gatingv1.Closed)

	t.Log("and ask in his own name, whatever was asked before")
	if err := override(bob, func(a map[string]string) { a[gatingv1.CloseRequestedAtAnnotation] = stamp(time.Now()) }); err != nil {
		t.Error(err)
	}
	selector := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "all"}, Spec: gatingv1.GateSpec{
		Selector: &gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}},
	}}
	denied(t, bob.Create(t.Context(), selector), "may not select objects of other namespaces")
	denied(t, alice.Create(t.Context(), selector), "may not select objects of other namespaces")
	if err := s.client.Create(t.Context(), selector, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

func TestChecksOfGates(t *testing.T) {
	var status atomic.Int64
	status.Store(http.StatusServiceUnavailable)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		case "/hangs":
			<-r.Context().Done()
		case "/api/v1/query":
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0.%d"]}]}}`, status.Load()/100)
		default:
			w.WriteHeader(int(status.Load()))
		}
	}))
	t.Cleanup(endpoint.Close)
	s := newSystem(t, func(o *Options) { o.NoCrossNamespaceRefs = true })
	every := &metav1.Duration{Duration: time.Second}
	check := func(c gatingv1.Check) gatingv1.GateSpec {
		c.Name, c.Interval = "it", every
		return gatingv1.GateSpec{Default: gatingv1.Opened, Checks: []gatingv1.Check{c}}
	}
	web := func(path string) gatingv1.Check {
		return gatingv1.Check{HTTP: &gatingv1.HTTPCheck{URL: endpoint.URL + path}}
	}
	hangs := web("/hangs")
	hangs.Timeout = &metav1.Duration{Duration: 500 * time.Millisecond}
	object := func(namespace, kind, name string) gatingv1.Check {
		return gatingv1.Check{Object: &gatingv1.ObjectCheck{APIVersion: "v1", Kind: kind, Name: name, Namespace: namespace, Expression: "object.data.k == '1'"}}
	}
	for name, c := range map[string]gatingv1.Check{
		"web": web("/"), "metadata": web("/metadata"), "hangs": hangs, "object": object("", "ConfigMap", "state"),
		"other": object("kube-system", "ConfigMap", "state"), "kindless": object("", "Spaceship", "state"),
		"numbers": {Prometheus: &gatingv1.PrometheusCheck{Address: endpoint.URL, Query: "errors", Below: "0.4"}},
	} {
		s.newGate(name, check(c))
	}
	slow := check(web("/"))
	slow.Checks[0].For = &metav1.Duration{Duration: 10 * time.Hour}
	s.newGate("slow", slow)

	for name, says := range map[string]string{
		"web": "status 503", "metadata": "link-local", "hangs": "", "object": "may not get ConfigMap 'state'", "other": "cross-namespace references have been blocked",
		"kindless": "no kind Spaceship", "numbers": "gives 0.5, which is not below 0.4", "slow": "status 503",
	} {
		testenv.Eventually(t, name+" is closed", func() error {
			g := &gatingv1.Gate{}
			if err := s.get(g, name); err != nil {
				return err
			}
			c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "CheckFailed" || len(g.Status.Checks) != 1 ||
				!strings.Contains(g.Status.Checks[0].Message, says) || !strings.Contains(g.Status.Why.Message, says) {
				return fmt.Errorf("%+v", g.Status)
			}
			return nil
		})
	}

	t.Log("once they hold")
	status.Store(http.StatusNoContent)
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "reader"}})
	s.grant("default")
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "state"}, Data: map[string]string{"k": "1"}})
	for _, name := range []string{"web", "object", "numbers"} {
		s.gateIs(name, true, "ReconciliationSucceeded", "Gate opened by default")
	}
	testenv.Eventually(t, "slow says that it takes its time", func() error {
		g := &gatingv1.Gate{}
		if err := s.get(g, "slow"); err != nil {
			return err
		}
		if c := g.Status.Checks; len(c) != 1 || !c[0].Passed || c[0].Holds || !strings.Contains(c[0].Message, "not for long enough") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})

	t.Log("and no longer")
	status.Store(http.StatusInternalServerError)
	s.gateIs("web", false, "CheckFailed", "check 'it' does not hold")
}
