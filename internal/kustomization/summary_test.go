package kustomization

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/apply"
)

func TestASummaryNamesWhoHadAnObjectBefore(t *testing.T) {
	ref := apply.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	got := summary([]apply.Change{{Ref: ref, Action: apply.Configured, Diff: "~ data.a: 1 → 2",
		PreviousOwner: apply.Owner{Namespace: "flux-system", Name: "other"}}})
	want := "1 configured\nConfigMap/shop/web configured, taken over from Kustomization flux-system/other: if that " +
		"declares it still, remove it from one of the two\n" +
		"ConfigMap/shop/web:\n  ~ data.a: 1 → 2"
	if got != want {
		t.Errorf("the summary is\n%s\nwant\n%s", got, want)
	}
}
