package helmrelease_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

// TestKeptHistoryDoesNotBlockDeletion lets the first attempt to uninstall a release fail, after Helm has recorded that
// the release is uninstalled.
func TestKeptHistoryDoesNotBlockDeletion(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	keep := func(s *helmv2.HelmReleaseSpec) {
		s.Uninstall = &helmv2.Uninstall{KeepHistory: true, Timeout: &meta.Duration{Duration: 2 * time.Second}}
	}
	h.release("app", keep)
	h.ready("app", 1)
	h.Patch(&corev1.ConfigMap{}, "app-config", `{"metadata":{"finalizers":["example.com/slow"]}}`)
	h.delete("app")
	h.retry("app")
	h.Gone(&helmv2.HelmRelease{}, "app")
	if got := h.statuses("app"); got != "1 uninstalled" {
		t.Errorf("the history is %s", got)
	}
	h.Patch(&corev1.ConfigMap{}, "app-config", `{"metadata":{"finalizers":null}}`)
	h.Gone(&corev1.ConfigMap{}, "app-config")
}
