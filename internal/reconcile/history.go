package reconcile

import (
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

// maxHistory is the maximum number of entries in status.history.
const maxHistory = 5

// RecordHistory returns a history, newest first, with one more reconciliation of a build. The given history is not
// changed. The function returns the reconciliation in an entry. That of the same build and status becomes the first.
func RecordHistory[E any](history []E, of func(*E) *meta.Reconciliation, digest, status string, started,
	now time.Time) []E {
	var first E
	*of(&first) = meta.Reconciliation{Digest: digest, LastReconciledStatus: status, FirstReconciled: meta.TimeOf(now)}
	recorded := make([]E, 1, maxHistory)
	for i := range history {
		if of(&history[i]).Is(digest, status) {
			first = history[i]
		} else if len(recorded) < maxHistory {
			recorded = append(recorded, history[i])
		}
	}
	r := of(&first)
	r.LastReconciled = meta.TimeOf(now)
	r.LastReconciledDuration = meta.Elapsed{Duration: now.Sub(started).Round(time.Microsecond)}
	r.TotalReconciliations++
	recorded[0] = first
	return recorded
}
