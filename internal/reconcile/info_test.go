package reconcile

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

func TestInfoHasOneSeriesForEachObject(t *testing.T) {
	t.Parallel()
	info := NewInfo("state", "s", []string{"name", "ready", "reason", "suspended"},
		func(k *kustomizev1.Kustomization) []string { return append([]string{k.Name}, InfoValues(k)...) })
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	ref := RefTo(schema.GroupKind{Kind: "Kustomization"}, "", "a")
	expect := func(series string) {
		t.Helper()
		if series != "" {
			series = "# HELP state s\n# TYPE state gauge\nstate" + series + " 1\n"
		}
		if err := testutil.CollectAndCompare(info.Collector(), strings.NewReader(series)); err != nil {
			t.Error(err)
		}
	}
	info.set(ref, k)
	expect(`{name="a",ready="Unknown",reason="",suspended="false"}`)
	Mark(k, TypeReady, metav1.ConditionTrue, "Done", "")
	k.Spec.Suspend = true
	info.set(ref, k)
	expect(`{name="a",ready="True",reason="Done",suspended="true"}`)
	info.forget(ref)
	expect("")
	var none *Info[*kustomizev1.Kustomization]
	none.set(ref, k)
	none.forget(ref)
}
