package delivery

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// TestWhichKernelEventsReachAlerts checks which events of the controllers are posted.
func TestWhichKernelEventsReachAlerts(t *testing.T) {
	o := newFakeProviders(nil)
	d, stop := start(t, options(t.TempDir(), o))
	defer stop()
	scheme := runtime.NewScheme()
	if err := kustomizev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app"}}
	update := map[string]string{"to": "a", event.Revision: "main@sha1:1", event.CommitStatus: event.CommitStatusUpdate}
	events := d.KernelEvents(scheme, "test")
	for _, e := range []reconcile.Event{
		{Type: "Normal", Reason: "Succeeded", Message: "changed", Metadata: map[string]string{"to": "a"}},
		{Type: "Normal", Reason: "HelmChartCreated", Message: "trace", Metadata: update, ClusterOnly: true},
		{Type: "Normal", Reason: "Succeeded", Message: "Applied revision", Minor: true,
			Metadata: map[string]string{"to": "a", event.Revision: "main@sha1:1"}},
		{Type: "Normal", Reason: "Succeeded", Message: "Reconciliation finished", Minor: true, Metadata: update},
	} {
		events.Emit("kustomize.toolkit.fluxcd.io", k, e)
	}
	want := []string{"changed", "Reconciliation finished"}
	eventually(t, "the last event is received", func() bool { return len(o.received("a")) >= len(want) })
	if got := o.received("a"); !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
}
