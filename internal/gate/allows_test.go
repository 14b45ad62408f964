package gate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

func TestAGateThatOpenedLaterThanNowIsClosedUntilItIsEvaluated(t *testing.T) {
	later := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := later.Add(-365 * 24 * time.Hour) // the clock was set back
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
	open := verdict.Verdict{Open: true, Reason: "Default", Message: "open", Why: "open"}
	setStatus(g, open, nil, later)
	if !Allows(g, "main@sha1:a", later) {
		t.Fatal("an open gate allows nothing")
	}
	if Allows(g, "main@sha1:a", now) {
		t.Error("a gate is open before it opened")
	}
	if transition := setStatus(g, open, nil, now); transition != nil {
		t.Errorf("the evaluation is a transition: %+v", transition)
	}
	if !Allows(g, "main@sha1:a", now) || !g.Status.History[0].At.Time.Equal(now) {
		t.Errorf("after an evaluation the gate is closed; its history begins at %s", g.Status.History[0].At)
	}
}
