package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

func TestHistoryKeepsTheLastFiveOfEachBuildAndStatus(t *testing.T) {
	var history []meta.Reconciliation
	self := func(r *meta.Reconciliation) *meta.Reconciliation { return r }
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for i, digest := range []string{"a", "b", "c", "b", "d", "e", "f"} {
		started := began.Add(time.Duration(i) * time.Minute)
		before := fmt.Sprint(history)
		recorded := RecordHistory(history, self, digest, "ok", started, started.Add(1500*time.Nanosecond))
		if got := fmt.Sprint(history); got != before {
			t.Errorf("the earlier history became %s, want %s", got, before)
		}
		history = recorded
	}
	var got []string
	for _, r := range history {
		got = append(got, fmt.Sprintf("%s %d %d-%d %s", r.Digest, r.TotalReconciliations, r.FirstReconciled.Minute(),
			r.LastReconciled.Minute(), r.LastReconciledDuration))
	}
	const want = "[f 1 6-6 2µs e 1 5-5 2µs d 1 4-4 2µs b 2 1-3 2µs c 1 2-2 2µs]"
	if fmt.Sprint(got) != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
	if other := RecordHistory(history, self, "f", "failed", began, began); len(other) != 5 || !other[1].Is("f", "ok") ||
		!other[0].Is("f", "failed") {
		t.Errorf("the history after a failure is %v", other)
	}
}
