package reconcile

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestResourceInfoHasOneSeriesPerObject(t *testing.T) {
	ref := RefTo(schema.GroupKind{Kind: "Test"}, "a", "b")
	before := testutil.CollectAndCount(resourceInfo)
	for _, s := range []infoState{{ready: "Unknown", suspended: "false"}, {ready: "True", suspended: "false"},
		{ready: "True", suspended: "false"}, {ready: "True", suspended: "true"}} {
		infos.set(ref, s)
		if n := testutil.CollectAndCount(resourceInfo) - before; n != 1 {
			t.Errorf("%d series for %+v, want 1", n, s)
		}
		if v := testutil.ToFloat64(resourceInfo.WithLabelValues(ref.labels(s)...)); v != 1 {
			t.Errorf("the value for %+v is %v, want 1", s, v)
		}
	}
	infos.forget(ref)
	if n := testutil.CollectAndCount(resourceInfo); n != before {
		t.Errorf("%d series remain after forget", n-before)
	}
}
