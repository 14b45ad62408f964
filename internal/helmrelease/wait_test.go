package helmrelease_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

const healthy = `{"metadata":{"annotations":{"good":"yes"}}}`

// slow makes ConfigMaps healthy when they have an annotation.
func slow(s *helmv2.HelmReleaseSpec) {
	s.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
		Current: "has(metadata.annotations.good)", InProgress: "!has(metadata.annotations.good)"}}
}

// waiting waits until a release is applied and its health is waited for.
func (h *harness) waiting(name, stored string) {
	h.Helper()
	testenv.Eventually(h, name+" waits for the health of its objects", func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, name); err != nil {
			return err
		}
		if got := h.statuses(name); got != stored || !strings.Contains(fmt.Sprint(r.Status.Conditions),
			"Running health checks") {
			return fmt.Errorf("stored: %s; %+v", got, r.Status.Conditions)
		}
		return nil
	})
}

// TestAWaitHoldsNoWorker has one worker. A release that waits for the health of its objects does not keep others of its
// namespace waiting, outlives a restart of the controllers, and ends at once when something else is declared.
func TestAWaitHoldsNoWorker(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *options.Options) { o.Concurrent = 1 })
	h.publish("1.0.0", nil)
	h.release("slow", slow, func(s *helmv2.HelmReleaseSpec) { s.Timeout = &meta.Duration{Duration: system.NoTimeout} })
	h.waiting("slow", "1 pending-install")
	h.release("fast")
	h.ready("fast", 1)

	h.Stop()
	h.Start()
	h.Patch(&corev1.ConfigMap{}, "slow-config", healthy)
	h.ready("slow", 1)
	if got := h.statuses("slow"); got != "1 deployed" {
		t.Errorf("stored releases are %s", got)
	}

	h.edit("slow", func(s *helmv2.HelmReleaseSpec) {
		s.HealthCheckExprs[0].Current = "data.k == 'green'"
		s.HealthCheckExprs[0].InProgress = "data.k != 'green'"
		values(map[string]any{"color": "blue"})(s)
	})
	h.waiting("slow", "2 pending-upgrade, 1 deployed")
	h.edit("slow", values(map[string]any{"color": "green"}))
	r := h.ready("slow", 3)
	if got := h.statuses("slow"); got != "3 deployed, 2 failed, 1 superseded" || r.Status.UpgradeFailures != 0 {
		t.Errorf("stored releases are %s; %d failures", got, r.Status.UpgradeFailures)
	}
}
