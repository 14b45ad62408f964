package rollout

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

func TestSummaryNamesPreviousOwner(t *testing.T) {
	ref := apply.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	got := Summary("Kustomization", []apply.Change{{Ref: ref, Action: apply.Configured, Diff: "~ data.a: 1 → 2",
		PreviousOwner: apply.Owner{Namespace: "flux-system", Name: "other"}}})
	want := "1 configured\nConfigMap/shop/web configured, taken over from Kustomization flux-system/other. If both " +
		"declare it, remove it from one of them\n" +
		"ConfigMap/shop/web:\n  ~ data.a: 1 → 2"
	if got != want {
		t.Errorf("the summary is\n%s\nwant\n%s", got, want)
	}
}

func TestSummarySaysWhatHoldsADeletion(t *testing.T) {
	ref := apply.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	got := Summary("Kustomization", []apply.Change{{Ref: ref, Action: apply.Deleted, HeldBy: []string{"a.b/c"}}})
	if want := "1 deleted\nConfigMap/shop/web deletion requested, held by finalizers: a.b/c"; got != want {
		t.Errorf("the summary is\n%s\nwant\n%s", got, want)
	}
}
