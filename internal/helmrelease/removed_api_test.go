package helmrelease_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestObjectsOfARemovedAPIDoNotHoldARelease removes a definition whose objects are part of releases. One release is
// upgraded to no longer have the object, one uninstalled; a warning names the object. A release that still declares the
// object fails.
func TestObjectsOfARemovedAPIDoNotHoldARelease(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	group := testenv.Namespace(t) + ".example.com"
	h.publish("1.0.0", map[string]string{"templates/thing.yaml": "{{ if ne .Values.color \"green\" }}\napiVersion: " +
		group + "/v1\nkind: Thing\nmetadata: {name: {{ .Release.Name }}}\n{{ end }}"})
	definition := h.createDefinition(group)
	names := []string{"upgraded", "deleted", "kept"}
	for _, name := range names {
		h.release(name)
	}
	for _, name := range names {
		h.ready(name, 1)
	}
	if err := h.Client.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the kind is no longer served", func() error {
		if _, err := served.ServerResourcesForGroupVersion(group + "/v1"); !apierrors.IsNotFound(err) {
			return errStillServed
		}
		return nil
	})
	h.edit("upgraded", values(map[string]any{"color": "green"}))
	h.ready("upgraded", 2)
	h.configMap("upgraded-config", "green")
	h.HasEvent("upgraded", meta.AppliedWithWarningsReason, "Thing 'upgraded' of the release is left out")

	h.edit("kept", values(map[string]any{"color": "blue"}))
	h.NotReady(&helmv2.HelmRelease{}, "kept", helmv2.UpgradeFailedReason, "Thing")

	h.delete("deleted")
	h.Gone(&helmv2.HelmRelease{}, "deleted")
	h.Gone(&corev1.ConfigMap{}, "deleted-config")
	h.HasEvent("deleted", meta.AppliedWithWarningsReason, "Thing 'deleted' of the release is left out")
}

var errStillServed = errors.New("it is still served")
