package helmrelease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// reverted waits until a HelmRelease is Ready, and went back to a version of its chart.
func (h *harness) reverted(name, from, to string) {
	h.Helper()
	h.hasCondition(name, "Ready", "True", helmv2.RollbackSucceededReason, "chart app@"+to)
	testenv.Eventually(h, name+" went back", func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, name); err != nil {
			return err
		}
		if v := r.Status.Reverted; v == nil || v.From != from || v.To != to || v.Gate != h.Namespace+"/release" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
}

func TestFailedReleaseIsReverted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.WatchingGate("release", gatingv1.OnFailureRevert)
	h.publish("1.0.0", nil)
	h.release("app", behind("release"), detecting(meta.DriftEnabled))
	h.ready("app", 1)
	h.publish("1.1.0", map[string]string{"values.yaml": "color: bad\n"})
	h.reverted("app", "1.1.0", "1.0.0")
	h.configMap("app-config", "red")
	h.HasEvent("app", meta.RevertedReason, "1.1.0")
	h.GateOpened("release", metav1.ConditionTrue, "except for revision '1.1.0', which failed")
	if got := h.statuses("app"); !strings.HasPrefix(got, "3 deployed, 2 failed") {
		t.Errorf("stored releases are %s", got)
	}

	t.Log("drift is corrected to the release that was healthy, also after a restart; it is not released again")
	h.Stop()
	h.deleteConfig()
	h.Start()
	h.configMap("app-config", "red")
	h.deleteConfig()
	h.configMap("app-config", "red")
	if got := h.statuses("app"); !strings.HasPrefix(got, "3 deployed") {
		t.Errorf("stored releases are %s", got)
	}

	t.Log("other values pass by the gate's own rules")
	h.edit("app", values(map[string]any{"color": "blue"}))
	if r := h.ready("app", 4); r.Status.Reverted != nil {
		t.Errorf("status.reverted is %+v", r.Status.Reverted)
	}

	t.Log("the chart is the same, with bad values: they are rolled back, until a person names the revision")
	h.edit("app", values(map[string]any{"color": "bad"}))
	h.reverted("app", "1.1.0", "1.1.0")
	h.configMap("app-config", "blue")
	last := h.stored("app")[0].Version
	h.AnnotateGate("release", map[string]any{
		gatingv1.OpenRequestedAtAnnotation: time.Now().UTC().Add(time.Second).Format(time.RFC3339Nano),
		gatingv1.OpenRevisionAnnotation:    "1.1.0"})
	testenv.Eventually(t, "the bad values are released again", func() error { // they fail again, and are rolled back
		for _, rel := range h.stored("app") {
			if rel.Version > last && rel.Config["color"] == "bad" && rel.Info.Status == common.StatusFailed {
				return nil
			}
		}
		return errors.New(h.statuses("app"))
	})
}

func TestRevertKeepsWhatRemediationDid(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.WatchingGate("release", gatingv1.OnFailureRevert)
	h.publish("1.0.0", nil)
	h.release("app", behind("release"), func(s *helmv2.HelmReleaseSpec) {
		last := true
		s.Upgrade = &helmv2.Upgrade{Remediation: &helmv2.UpgradeRemediation{Retries: 1, RemediateLastFailure: &last}}
	})
	h.ready("app", 1)
	h.publish("1.1.0", map[string]string{"values.yaml": "color: bad\n"})
	h.reverted("app", "1.1.0", "1.0.0")
	if got := h.statuses("app"); !strings.HasPrefix(got, "5 deployed, 4 failed") {
		t.Errorf("stored releases are %s", got) // 2 and 4 failed, and 3 and 5 are rollbacks
	}
}

func TestReleaseWithoutHealthyOneStays(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.WatchingGate("release", gatingv1.OnFailureRevert)
	h.publish("1.0.0", map[string]string{"values.yaml": "color: bad\n"})
	h.release("app", behind("release"))
	h.HasEvent("app", meta.RevertFailedReason, "cannot go back: no earlier release was healthy")
	h.GateOpened("release", metav1.ConditionFalse, "is unhealthy")
}

func TestPersonMakesReleaseGoBack(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.WatchingGate("release", gatingv1.OnFailureRevert)
	h.publish("1.0.0", nil)
	h.release("app", behind("release"))
	h.ready("app", 1)
	h.edit("app", values(map[string]any{"color": "blue"}))
	if p := h.ready("app", 2).Status.Previous; p == nil || p.Revision != "1.0.0" || p.Release != 1 {
		t.Fatalf("status.previous is %+v", p)
	}
	h.AnnotateGate("release", map[string]any{
		gatingv1.RefuseRequestedAtAnnotation:            time.Now().UTC().Format(time.RFC3339Nano),
		gatingv1.RefusePrefix + gatingv1.RevisionSuffix: "1.0.0",
		gatingv1.RefusePrefix + gatingv1.ObjectSuffix:   "HelmRelease/" + h.Namespace + "/app"})
	h.reverted("app", "1.0.0", "1.0.0")
	h.configMap("app-config", "red")
	h.GateOpened("release", metav1.ConditionTrue, "an unverified user refused")

	t.Log("other values pass")
	h.edit("app", values(map[string]any{"color": "green"}))
	h.configMap("app-config", "green")
}
