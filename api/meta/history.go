package meta

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

// Is reports whether a build with this digest ended with this status.
func (r *Reconciliation) Is(digest, status string) bool {
	return r.Digest == digest && r.LastReconciledStatus == status
}
