package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

// sluiceGate runs `sluice gate` and checks its exit code and standard error.
type sluiceGate func(code int, want string, args ...string) result

func TestGateRequests(t *testing.T) {
	c, namespace := withDefinitions(t)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"}}
	g.Spec.Interval.Duration = gatingv1.DefaultInterval
	g.Spec.Approvals = &gatingv1.Approvals{Required: 1}
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	sluice := func(code int, want string, args ...string) result {
		return at(t, append([]string{"gate", "-n", namespace}, args...)...).wants(t, code, want)
	}
	requests := func() verdict.Requests {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		r, err := verdict.ReadRequests(g.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	sluice(exitOK, "to open", "open", "release", "--for", "2h", "--revision", "main@sha1:abc")
	if r := requests().Open; r == nil || r.Window.Hours() != 2 || r.Revision != "main@sha1:abc" || r.By == "" {
		t.Errorf("the request is %+v", r)
	}
	sluice(exitOK, "to open", "open", "release")
	if r := requests().Open; r == nil || r.Window != 0 || r.Revision != "" {
		t.Errorf("the new request keeps fields of the last one: %+v", r)
	}
	sluice(exitOK, "to close", "close", "release", "--reason", "freeze")
	if r := requests(); r.Close == nil || !r.Close.At.After(r.Open.At) || r.Close.Reason != "freeze" {
		t.Errorf("the request is %+v", r.Close)
	}
	sluice(exitUsage, "--reason", "open", "release", "--override")
	sluice(exitUsage, "--for", "open", "release", "--for", "-1h")
	sluice(exitOK, "to open", "open", "release", "--override", "--reason", "production is down")
	if r := requests().Override; r == nil || r.Reason != "production is down" || r.By == "" {
		t.Errorf("the request is %+v", r)
	}

	testGateApproval(t, c, namespace, sluice)
	testGateLists(t, c, g, sluice)
}

func testGateApproval(t *testing.T, c client.Client, namespace string, sluice sluiceGate) {
	t.Helper()
	sluice(exitOK, "GateApproval", "approve", "release", "--revision", "main@sha1:abc", "--expires", "24h")
	var approvals gatingv1.GateApprovalList
	if err := c.List(t.Context(), &approvals, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(approvals.Items) != 1 || approvals.Items[0].Spec.User == "" || approvals.Items[0].Spec.ExpiresAt == nil {
		t.Errorf("approvals are %+v", approvals.Items)
	}
}

func testGateLists(t *testing.T, c client.Client, g *gatingv1.Gate, sluice sluiceGate) {
	t.Helper()
	before := g.DeepCopy()
	g.Status.Why = &gatingv1.Explanation{Reason: gatingv1.WhyRequested, Message: "freeze"}
	g.Status.WaitingCount = 1
	g.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: g.Namespace, Name: "app",
		Revision: "main@sha1:def"}}
	g.Status.History = []gatingv1.HistoryEntry{{
		At: meta.TimeOf(time.Now()), State: gatingv1.Closed, Reason: gatingv1.WhyRequested,
		Message: "freeze", By: "alice"}}
	if err := c.Status().Patch(t.Context(), g, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	for verb, want := range map[string]string{"status": "Kustomization/" + g.Namespace + "/app main@sha1:def",
		"history": "alice"} {
		if out := sluice(exitOK, "", verb, "release").out; !strings.Contains(out, want) {
			t.Errorf("%s lacks %q:\n%s", verb, want, out)
		}
	}
	if out := sluice(exitOK, "", "list").out; !strings.Contains(out, "OPENED") || !strings.Contains(out, "release") {
		t.Errorf("list prints\n%s", out)
	}
	sluice(exitFailed, "nothing", "open", "nothing")
}

// TestGateCreateExport prints a gate with all flags, with `sluice gate create` and with `sluice create gate`.
func TestGateCreateExport(t *testing.T) {
	flags := []string{"release", "--export", "--default", "opened", "--window", "1h", "--interval", "5m", "--label",
		"team=a", "--overridable=false",
		"--schedule", "closed;0 0 * * 5;24h;Europe/Berlin", "--schedule", "closed;12-24,2026-12-31", "--schedule",
		"opened; 0 8 * * 1 ;8h",
		"--select-kinds", "Kustomization,GitRepository", "--select-namespaces", "a,b", "--select-labels", "tier=web",
		"--approvals-required", "2", "--approver", "alice,bob", "--approver-group", "managers",
		"--approvals-valid-for", "24h",
		"--allow-manual", "--overrun", "stop"}
	first := run(t, append([]string{"gate", "create"}, flags...)...).wants(t, exitOK)
	golden(t, "create-gate-options.yaml", first.out)
	if r := run(t, append([]string{"create", "gate"}, flags...)...).wants(t, exitOK); r.out != first.out {
		t.Errorf("sluice create gate prints\n%s\nsluice gate create\n%s", r.out, first.out)
	}
}

func TestGateStatusAndSimulation(t *testing.T) {
	c, namespace := withDefinitions(t)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"}}
	g.Spec.Interval.Duration = gatingv1.DefaultInterval
	g.Spec.Default = gatingv1.Opened
	g.Spec.Schedule = []gatingv1.ScheduleEntry{{
		Name: "fridays", State: gatingv1.Closed, Cron: "0 0 * * 5",
		Duration: &meta.Duration{Duration: 24 * time.Hour}, TimeZone: "Europe/Berlin",
	}}
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create(g)
	kustomization := func(name string, gates ...meta.GateReference) *kustomizev1.Kustomization {
		k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		k.Spec.Interval.Duration = time.Minute
		k.Spec.Prune = true
		k.Spec.SourceRef.Kind, k.Spec.SourceRef.Name = "GitRepository", "app"
		k.Spec.Gates = gates
		create(k)
		return k
	}
	k := kustomization("app", meta.GateReference{Name: "release"})
	kustomization("orphan", meta.GateReference{Name: "gone"})
	kustomization("free")
	k.Status.Gates = []string{namespace + "/release"}
	k.Status.Pending = &meta.Pending{Revision: "main@sha1:def", Created: 3,
		Changes: []string{"ConfigMap/apps/settings created"},
		Diff:    "ConfigMap/apps/colors:\n  ~ data.color: red → blue"}
	if err := c.Status().Patch(t.Context(), k, statusOf(t, k)); err != nil {
		t.Fatal(err)
	}
	g.Status.WaitingCount = 1
	g.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: namespace, Name: "app",
		Revision: "main@sha1:def", Created: ptr.To(int64(3))}}
	if err := c.Status().Patch(t.Context(), g, statusOf(t, g)); err != nil {
		t.Fatal(err)
	}

	testGateStatus(t, namespace)
	testGateSimulation(t, namespace)
	testGateVerbs(t, c, g)
}

func testGateStatus(t *testing.T, namespace string) {
	t.Helper()
	out := at(t, "gate", "-n", namespace, "status", "release", "--diff").wants(t, exitOK).out
	for _, want := range []string{
		"Europe/Berlin", "closes 'fridays'", "Gate closed by schedule 'fridays'", "Fri ", "00:00 CE",
		"Gate opened by default", "(3 created, 0 configured, 0 deleted)",
		"ConfigMap/apps/settings created", "and 2 more", "ConfigMap/apps/colors:", "~ data.color: red → blue",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
}

func testGateSimulation(t *testing.T, namespace string) {
	t.Helper()
	then := func(when, object string) string {
		t.Helper()
		out := at(t, "simulate", "gates", "-n", namespace, "--at", when).wants(t, exitOK, "objects would pass at").out
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, object+" ") {
				return strings.Join(strings.Fields(line)[1:], " ")
			}
		}
		t.Errorf("%s is not in\n%s", object, out)
		return ""
	}
	app, orphan := "Kustomization/"+namespace+"/app", "Kustomization/"+namespace+"/orphan"
	for when, want := range map[string]string{
		"2126-11-21T12:00:00Z":      "passes main@sha1:def -",
		"2126-11-22T00:00:00+01:00": "held main@sha1:def " + namespace + "/release: Gate closed by schedule 'fridays'",
		"2126-11-22T22:59:59Z":      "held main@sha1:def " + namespace + "/release: Gate closed by schedule 'fridays'",
		"2126-11-22T23:00:00Z":      "passes main@sha1:def -",
	} {
		if got := then(when, app); got != want {
			t.Errorf("at %s the app is %q, want %q", when, got, want)
		}
	}
	if got, want := then("2126-11-21T12:00:00Z", orphan), "held - "+namespace+
		"/gone: the gate does not exist"; got != want {
		t.Errorf("object with a missing gate: %q, want %q", got, want)
	}
	if r := at(t, "simulate", "gates", "-n", namespace, "--at", "2126-11-21T12:00:00Z").
		wants(t, exitOK, "1 of 2 objects would pass"); strings.Contains(r.out, "/free") {
		t.Errorf("the simulation lists an object without gates:\n%s", r.out)
	}
}

func testGateVerbs(t *testing.T, c client.Client, g *gatingv1.Gate) {
	t.Helper()
	g.Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: "True", Reason: "ReconciliationSucceeded", Message: "Gate reconciled",
			LastTransitionTime: metav1.Now()},
		{Type: "Opened", Status: "True", Reason: "ReconciliationSucceeded", Message: "Gate opened by default",
			LastTransitionTime: metav1.Now()},
	}
	if err := c.Status().Patch(t.Context(), g, statusOf(t, g)); err != nil {
		t.Fatal(err)
	}
	if out := at(t, "get", "gates", "-n", g.Namespace).wants(t, exitOK).out; !strings.Contains(out, "WAITING") ||
		!strings.Contains(out, "Gate opened by default") {
		t.Errorf("get prints\n%s", out)
	}
	if out := at(t, "gate", "export", "release", "-n", g.Namespace).wants(t, exitOK).
		out; !strings.Contains(out, "Europe/Berlin") || strings.Contains(out, "status") {
		t.Errorf("export prints\n%s", out)
	}
	at(t, "gate", "delete", "release", "--silent", "-n", g.Namespace).wants(t, exitOK)
	at(t, "gate", "status", "release", "-n", g.Namespace).wants(t, exitFailed, "not found")
}
