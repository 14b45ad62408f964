package helmrelease_test

import (
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestAHookThatHangsEnds releases a chart with a hook whose pod never starts. On a slow machine, the timeout may pass
// before the hook is created: that does not count, and an upgrade has the hook as well.
func TestAHookThatHangsEnds(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate(`"pre-install,pre-upgrade"`)})
	h.release("app", values(map[string]any{"color": "red", "fail": "pending"}), func(s *helmv2.HelmReleaseSpec) {
		timeout := &meta.Duration{Duration: time.Second}
		s.Install, s.Upgrade = &helmv2.Install{Timeout: timeout}, &helmv2.Upgrade{Timeout: timeout}
	})
	h.hasCondition("app", reconcile.TypeStalled, "True", helmv2.RetriesExceededReason, "app-hook")
	failed := h.stored("app")[0]
	if got := failed.Info.Status; got != common.StatusFailed {
		t.Errorf("the last stored release is %s", got)
	}
	h.edit("app", func(s *helmv2.HelmReleaseSpec) {
		s.Upgrade = nil
		values(map[string]any{"color": "blue"})(s)
	})
	h.ready("app", failed.Version+1)
	h.configMap("app-config", "blue")
}

// TestWhatFailedMayRecover fails by the health of an object. When it becomes healthy, the release is tried again.
func TestWhatFailedMayRecover(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
			Current: "has(metadata.annotations.good)", Failed: "!has(metadata.annotations.good)"}}
	})
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.InstallFailedReason, "no retries are left: Helm install failed for")
	h.outOfRetries("app")
	h.Patch(&corev1.ConfigMap{}, "app-config", `{"metadata":{"annotations":{"good":"yes"}}}`)
	r := h.ready("app", 2)
	if r.Status.InstallFailures != 0 || r.Status.UpgradeFailures != 0 {
		t.Errorf("failures are still counted: %+v", r.Status)
	}
}

func TestImmutableFieldsNeedForce(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	immutable := configTemplate + "immutable: true\n"
	h.publish("1.0.0", map[string]string{"templates/config.yaml": immutable})
	h.release("app")
	h.ready("app", 1)
	h.edit("app", values(map[string]any{"color": "blue"}))
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.UpgradeFailedReason, "app-config")
	h.configMap("app-config", "red")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.Upgrade = &helmv2.Upgrade{Force: true} })
	h.ready("app", 3)
	h.configMap("app-config", "blue")
}

func TestTheTargetNamespaceIsCreated(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	target := testenv.Namespace(t)
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.TargetNamespace, s.Install = target, &helmv2.Install{CreateNamespace: true}
	})
	r := h.ready("app", 1)
	name := target + "-app"
	if s := r.Status.History[0]; s.Name != name || s.Namespace != target {
		t.Errorf("the release is %s/%s", s.Namespace, s.Name)
	}
	cm := &corev1.ConfigMap{}
	key := types.NamespacedName{Namespace: target, Name: name + "-config"}
	if err := h.Client.Get(t.Context(), key, cm); err != nil {
		t.Error(err)
	}
	if got := h.statuses(name); got != "1 deployed" {
		t.Errorf("stored releases are %s", got)
	}
}

func TestLongNamesAreCut(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	long := "a-name-of-a-release-that-is-longer-than-fifty-three-characters"
	h.release(long)
	r := h.ready(long, 1)
	if got := r.Status.History[0].Name; len(got) != 53 || got[:40] != long[:40] || got[40] != '-' {
		t.Errorf("the name of the release is %q", got)
	}
}

// TestAHookThatAsksForItsLogs has an annotation by which Helm prints the logs of a hook. It does so in a goroutine of
// its own, by a client that the actions here do not set up.
func TestAHookThatAsksForItsLogs(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	hook := strings.Replace(hookTemplate("pre-install"), "helm.sh/hook:",
		"helm.sh/hook-output-log-policy: 'hook-succeeded,hook-failed', helm.sh/hook:", 1)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hook})
	h.release("app")
	h.ready("app", 1)
}
