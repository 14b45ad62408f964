package kubeclient_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

// TestWavesOverReplicas has a gate with waves before objects of three replicas. The objects of the last wave wait for
// one of the first, which is suspended, whichever replica has it.
func TestWavesOverReplicas(t *testing.T) {
	t.Parallel()
	const apps = 9
	r := newReplicas(t, 3)
	r.Gate("release", func(g *gatingv1.Gate) {
		g.Spec.Selector = &gatingv1.Selector{Kinds: []gatingv1.SelectedKind{kustomizev1.KustomizationKind}}
		g.Spec.Waves = []gatingv1.Wave{{Name: "first",
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": "first"}}}}
	})
	r.TurnGate("release", gatingv1.Opened)
	isFirst := func(name string) bool { return name < "app-3" }
	commit := r.apps(apps, func(k *kustomizev1.Kustomization) {
		if isFirst(k.Name) {
			k.Labels = map[string]string{"wave": "first"}
		}
		k.Spec.Suspend = k.Name == "app-0"
	})
	for i := 1; i < apps; i++ {
		if name := fmt.Sprintf("app-%d", i); isFirst(name) {
			r.Ready(name, commit)
		} else {
			r.WaitsFor(name, commit)
		}
	}
	r.waits("release", apps-3)
	r.Patch(&kustomizev1.Kustomization{}, "app-0", `{"spec":{"suspend":false}}`)
	r.allReady(apps, commit)
	r.waits("release", 0)
}
