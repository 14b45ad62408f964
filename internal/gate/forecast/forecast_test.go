package forecast

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
)

// fridays is a gate that is closed on Fridays in UTC.
func fridays() *gatingv1.Gate {
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "release"}}
	g.Spec.Interval.Duration, g.Spec.Default = time.Minute, gatingv1.Opened
	g.Spec.Schedule = []gatingv1.ScheduleEntry{{Name: "fridays", State: gatingv1.Closed, Cron: "0 0 * * 5",
		Duration: &meta.Duration{Duration: 24 * time.Hour}}}
	return g
}

func TestTransitions(t *testing.T) {
	monday := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	list, more, err := Transitions(fridays(), monday, 7*24*time.Hour, 10)
	if err != nil || more || len(list) != 2 {
		t.Fatalf("got %+v, more: %t (%v)", list, more, err)
	}
	friday := time.Date(2026, 1, 9, 0, 0, 0, 0, time.UTC)
	if first := list[0]; !first.At.Equal(friday) || first.Opened || first.Schedule != calendar.Closed ||
		first.Entry != "fridays" {
		t.Errorf("the first transition is %+v", first)
	}
	if second := list[1]; !second.At.Equal(friday.Add(24*time.Hour)) || !second.Opened || second.Entry != "" {
		t.Errorf("the second transition is %+v", second)
	}
	if list, more, err = Transitions(fridays(), monday, 28*24*time.Hour, 3); err != nil || !more || len(list) != 3 {
		t.Errorf("with a limit got %d, more: %t (%v)", len(list), more, err)
	}
	invalid := fridays()
	invalid.Spec.Schedule[0].Cron = "never"
	if _, _, err := Transitions(invalid, monday, time.Hour, 1); err == nil {
		t.Error("an invalid schedule is accepted")
	}
}

func TestGatesOf(t *testing.T) {
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}}
	ks.Spec.Gates = []meta.GateReference{{Name: "release"}, {Name: "freeze", Namespace: "ops"}}
	ks.Status.Gates = []string{"apps/release", "ops/selected"}
	var names string
	for _, key := range GatesOf(ks) {
		names += key.String() + " "
	}
	if want := "apps/release ops/selected ops/freeze "; names != want {
		t.Errorf("got %s, want %s", names, want)
	}
}

// oneGate reads one gate.
type oneGate struct {
	client.Reader
	gate *gatingv1.Gate
}

func (o oneGate) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*into.(*gatingv1.Gate) = *o.gate
	return nil
}

func TestOpenGateHoldsWhatFailed(t *testing.T) {
	monday := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	g := fridays()
	g.Spec.OnFailure = gatingv1.OnFailureRevert
	g.Status.Failures = []gatingv1.FailedChange{{Revision: "main@sha1:bad", Message: "it crashed",
		Since: meta.Time{Time: monday.Add(-time.Hour)}, ResolvedAt: &meta.Time{Time: monday}}}
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}}
	ks.Spec.Gates = []meta.GateReference{{Name: "release"}}
	for revision, held := range map[string]string{"main@sha1:good": "",
		"main@sha1:bad": "apps/release: refuses revision 'main@sha1:bad', which failed: it crashed"} {
		ks.Status.Pending = &meta.Pending{Revision: revision}
		reasons, err := NewSimulation(oneGate{gate: g}, monday).HeldBy(t.Context(), ks)
		if got := strings.Join(reasons, "; "); err != nil || got != held {
			t.Errorf("%s: got %q, want %q (%v)", revision, got, held, err)
		}
	}
}
