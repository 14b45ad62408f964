package helmrelease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

func TestAChartIsInstalledUpgradedAndUninstalled(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("app")
	r := h.ready("app", 1)
	cm := h.configMap("app-config", "red")
	for key, want := range map[string]string{
		"helm.toolkit.fluxcd.io/name": "app", "helm.toolkit.fluxcd.io/namespace": h.Namespace,
		"app.kubernetes.io/managed-by": "Helm",
	} {
		if got := cm.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if got := cm.Annotations["meta.helm.sh/release-name"]; got != "app" {
		t.Errorf("the object is marked for release %q", got)
	}
	h.hasCondition("app", helmv2.ReleasedCondition, "True", helmv2.InstallSucceededReason,
		"Helm install succeeded for release "+h.Namespace+"/app.v1 with chart app@1.0.0")
	want := &meta.ResourceInventory{Entries: []meta.ResourceRef{
		{ID: h.Namespace + "_app-config__ConfigMap", Version: "v1"}}}
	if diff := cmp.Diff(want, r.Status.Inventory); diff != "" {
		t.Errorf("the inventory differs: %s", diff)
	}

	h.edit("app", values(map[string]any{"color": "blue"}))
	h.ready("app", 2)
	h.configMap("app-config", "blue")

	other := strings.ReplaceAll(configTemplate, "-config", "-other")
	h.publish("1.1.0", map[string]string{"templates/config.yaml": other})
	r = h.ready("app", 3)
	h.configMap("app-other", "blue")
	h.Gone(&corev1.ConfigMap{}, "app-config")
	if got, want := h.statuses("app"), "3 deployed, 2 superseded, 1 superseded"; got != want {
		t.Errorf("stored releases are %s, want %s", got, want)
	}
	checkHistory(t, r, "3 deployed 1.1.0 upgrade", "2 superseded 1.0.0 upgrade")
	if s := r.Status; s.LastAttemptedRevision != "1.1.0" || s.LastAttemptedReleaseAction != helmv2.ActionUpgrade ||
		s.HelmChart != h.Namespace+"/"+h.Namespace+"-app" || s.StorageNamespace != h.Namespace || s.Failures != 0 {
		t.Errorf("the status is %+v", s)
	}

	if err := h.Client.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	h.Gone(&helmv2.HelmRelease{}, "app")
	h.Gone(&corev1.ConfigMap{}, "app-other")
	h.Gone(&sourcev1.HelmChart{}, h.Namespace+"-app")
	if got := h.statuses("app"); got != "" {
		t.Errorf("releases are still stored: %s", got)
	}
}

// checkHistory compares status.history, as <version> <status> <chart version> <action>.
func checkHistory(t *testing.T, r *helmv2.HelmRelease, want ...string) {
	t.Helper()
	var got []string
	for _, s := range r.Status.History {
		got = append(got, fmt.Sprintf("%d %s %s %s", s.Version, s.Status, s.ChartVersion, s.Action))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
}
