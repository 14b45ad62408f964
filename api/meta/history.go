package meta

import "time"

// Reconciliation is how one build was reconciled, as an entry of status.history.
type Reconciliation struct {
	// Digest of the build.
	// +required
	Digest string `json:"digest"`
	// +required
	FirstReconciled Time `json:"firstReconciled"`
	// +required
	LastReconciled Time `json:"lastReconciled"`
	// +required
	LastReconciledDuration Elapsed `json:"lastReconciledDuration"`
	// LastReconciledStatus is the reason of the Ready condition.
	// +required
	LastReconciledStatus string `json:"lastReconciledStatus"`
	// +required
	TotalReconciliations int64 `json:"totalReconciliations"`
	// Metadata of the build, such as its revision or the number of its objects.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// maxHistory is the maximum number of entries in status.history.
const maxHistory = 5

// Is reports whether a build with this digest ended with this status.
func (r *Reconciliation) Is(digest, status string) bool {
	return r.Digest == digest && r.LastReconciledStatus == status
}

// Record returns a history, newest first, with one more reconciliation of a build. of returns that of an entry. The
// entry of the same build and status, if there is one, becomes the first.
func Record[E any](history []E, of func(*E) *Reconciliation, digest, status string, started, now time.Time) []E {
	var first E
	*of(&first) = Reconciliation{Digest: digest, LastReconciledStatus: status, FirstReconciled: TimeOf(now)}
	recorded := make([]E, 1, maxHistory)
	for i := range history {
		if of(&history[i]).Is(digest, status) {
			first = history[i]
		} else if len(recorded) < maxHistory {
			recorded = append(recorded, history[i])
		}
	}
	r := of(&first)
	r.LastReconciled = TimeOf(now)
	r.LastReconciledDuration = Elapsed{Duration: now.Sub(started).Round(time.Microsecond)}
	r.TotalReconciliations++
	recorded[0] = first
	return recorded
}
