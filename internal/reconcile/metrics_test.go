package reconcile

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnObjectIsShownOnce(t *testing.T) {
	ref := RefTo(schema.GroupKind{Kind: "Shown"}, "a", "b")
	before := testutil.CollectAndCount(resource)
	for _, s := range []shownState{{"Unknown", "false"}, {"True", "false"}, {"True", "false"}, {"True", "true"}} {
		shown.set(ref, s)
		if n := testutil.CollectAndCount(resource) - before; n != 1 {
			t.Errorf("%d series at %+v", n, s)
		}
		if v := testutil.ToFloat64(resource.WithLabelValues(ref.labels(s)...)); v != 1 {
			t.Errorf("%v at %+v", v, s)
		}
	}
	shown.forget(ref)
	if n := testutil.CollectAndCount(resource); n != before {
		t.Errorf("%d series are left", n-before)
	}
}
