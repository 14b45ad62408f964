package gate

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// TestMetricsOfAGateWithoutHistory records the metrics of an open gate whose status has lost its history.
func TestMetricsOfAGateWithoutHistory(t *testing.T) {
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "no-history"}}
	reconcile.Mark(g, gatingv1.OpenedCondition, metav1.ConditionTrue, gatingv1.WhyDefault, "")
	recordMetrics(g, nil)
	defer deleteMetrics(g)
	if got := testutil.ToFloat64(openedMetric.WithLabelValues("a", "no-history")); got != 1 {
		t.Errorf("the metric is %v", got)
	}
}
