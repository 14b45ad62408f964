package cli

import (
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// gateController evaluates a gate like the gating controller, with results that the test sets.
type gateController struct {
	*testing.T
	client client.Client
	key    client.ObjectKey

	mu       sync.Mutex
	evaluate func(*gatingv1.Gate)
}

// newGateController runs until the end of the test.
func newGateController(t *testing.T, c client.Client, g *gatingv1.Gate) *gateController {
	t.Helper()
	k := &gateController{T: t, client: c, key: client.ObjectKeyFromObject(g), evaluate: func(*gatingv1.Gate) {}}
	k.pass()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				k.pass()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return k
}

// set sets the result of the next evaluations.
func (k *gateController) set(evaluate func(*gatingv1.Gate)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.evaluate = evaluate
}

// pass evaluates the gate once. After an error the next pass tries again.
func (k *gateController) pass() {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := &gatingv1.Gate{}
	if err := k.client.Get(k.Context(), k.key, g); err != nil {
		return
	}
	var approvals gatingv1.GateApprovalList
	if err := k.client.List(k.Context(), &approvals, client.InNamespace(k.key.Namespace)); err != nil {
		return
	}
	before := g.DeepCopy()
	g.Status.ObservedGeneration = g.Generation
	g.Status.LastHandledReconcileAt = g.Annotations[meta.ReconcileRequestAnnotation]
	g.Status.Approvals = nil
	for _, a := range approvals.Items {
		g.Status.Approvals = append(g.Status.Approvals, gatingv1.ObservedApproval{Name: a.Name, User: a.Spec.User,
			At: meta.TimeOf(a.CreationTimestamp.Time), Counts: true})
	}
	k.evaluate(g)
	if !meta.Equal(before, g) {
		_ = k.client.Status().Patch(k.Context(), g, client.MergeFrom(before))
	}
}

// state returns an evaluation that opens or closes the gate.
func stateOf(status metav1.ConditionStatus, why string, change ...func(*gatingv1.Gate)) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		apimeta.SetStatusCondition((*[]metav1.Condition)(&g.Status.Conditions), metav1.Condition{
			Type: gatingv1.OpenedCondition, Status: status, Reason: "Test", Message: why})
		g.Status.Why = &gatingv1.Explanation{Reason: "Test", Message: why}
		for _, c := range change {
			c(g)
		}
	}
}

// gateStep is a command, with the result of the evaluation that follows.
type gateStep struct {
	name   string
	result func(*gatingv1.Gate)
	args   []string
	code   int
	want   string
}

func runGateSteps(t *testing.T, steps []gateStep) {
	t.Helper()
	c, namespace := withDefinitions(t)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Approvals: &gatingv1.Approvals{Required: 2}}}
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	controller := newGateController(t, c, g)
	for _, step := range steps {
		t.Log(step.name)
		controller.set(step.result)
		at(t, append([]string{"gate", "-n", namespace}, step.args...)...).wants(t, step.code, step.want)
	}
}

func TestGateRequestsReportTheResult(t *testing.T) {
	end := meta.TimeOf(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC))
	limited := func(g *gatingv1.Gate) {
		g.Status.ResetToDefaultAt, g.Status.ApprovedRevisions = &end, []string{"v2"}
	}
	unlimited := func(g *gatingv1.Gate) { g.Status.ResetToDefaultAt, g.Status.ApprovedRevisions = nil, nil }
	runGateSteps(t, []gateStep{
		{name: "opens until a time", result: stateOf(metav1.ConditionTrue, "Gate open requested", limited),
			args: []string{"open", "release"}, code: exitOK, want: "is open for v2 until 2099-01-01T00:00:00Z"},
		{name: "stays closed", result: stateOf(metav1.ConditionFalse, "Gate closed: 0 of 2 approvals", unlimited),
			args: []string{"open", "release"}, code: exitFailed,
			want: "is recorded, but it is still closed: 0 of 2 approvals"},
		{name: "closes", result: stateOf(metav1.ConditionFalse, "Gate close requested"),
			args: []string{"close", "release"}, code: exitOK, want: "/release' is closed"},
		{name: "stays open", result: stateOf(metav1.ConditionTrue, "Gate opened by schedule"),
			args: []string{"close", "release"}, code: exitFailed, want: "is still open: Gate opened by schedule"},
	})
}

func TestGateApprovalsReportTheResult(t *testing.T) {
	refused := func(g *gatingv1.Gate) {
		for i := range g.Status.Approvals {
			g.Status.Approvals[i].Counts = false
			g.Status.Approvals[i].Message = "user 'admin' is not an approver of this gate"
		}
	}
	waiting := func(g *gatingv1.Gate) {
		g.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: g.Namespace, Name: "app",
			Revision: "main@sha1:abc"}}
	}
	opened := stateOf(metav1.ConditionTrue, "Approved by admin", waiting)
	runGateSteps(t, []gateStep{
		{name: "not enough", result: stateOf(metav1.ConditionFalse, "Gate closed: 1 of 2 approvals"),
			args: []string{"approve", "release"}, code: exitOK, want: "is still closed: 1 of 2 approvals"},
		{name: "opens", result: opened, args: []string{"approve", "release"}, code: exitOK, want: "/release' is open"},
		{name: "a waiting revision", result: opened, args: []string{"approve", "release", "--revision", "sha1:abc"},
			code: exitOK, want: "/release' is open"},
		{name: "an unknown revision", result: opened, args: []string{"approve", "release", "--revision", "sha1:def"},
			code: exitOK, want: "no object waits for revision sha1:def"},
		{name: "does not count", result: stateOf(metav1.ConditionFalse, "Gate closed: 0 of 2 approvals", refused),
			args: []string{"approve", "release"}, code: exitFailed,
			want: "does not count: user 'admin' is not an approver of this gate"},
	})
}

func TestAnOpenGateWithWaitingObjectsSaysWhy(t *testing.T) {
	open := []metav1.Condition{{Type: gatingv1.OpenedCondition, Status: metav1.ConditionTrue}}
	for want, s := range map[string]gatingv1.GateStatus{
		"": {WaitingCount: 0},
		", although the gate is open: they have not been reconciled since it opened": {WaitingCount: 1},
		", although the gate is open: it lets only these revisions through: v1, v2": {WaitingCount: 1,
			ApprovedRevisions: []string{"v1", "v2"}},
		", although the gate is open: its rules hold their changes": {WaitingCount: 1,
			Waiting: []gatingv1.WaitingObject{{Rule: "r", Message: "requires 1 approval"}}},
		", although the gate is open: their waves have not started": {WaitingCount: 1,
			Waves: make([]gatingv1.WaveProgress, 1)},
		", although the gate is open: it refuses revisions that failed, or that people refused": {WaitingCount: 1,
			Failures: make([]gatingv1.FailedChange, 1)},
	} {
		s.Conditions = open
		if got := whyWaiting(&gatingv1.Gate{Status: s}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := whyWaiting(&gatingv1.Gate{Status: gatingv1.GateStatus{WaitingCount: 1}}); got != "" {
		t.Errorf("a closed gate says %q", got)
	}
}
