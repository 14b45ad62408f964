package kustomization

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
)

// maxHistory is how many builds status.history keeps.
const maxHistory = 5

func inventoryOf(obj *kustomizev1.Kustomization) apply.Inventory {
	return spec.Inventory(obj.Status.Inventory)
}

func setInventory(obj *kustomizev1.Kustomization, i apply.Inventory) {
	entries := make([]meta.ResourceRef, 0, len(i))
	for _, e := range i {
		entries = append(entries, meta.ResourceRef{ID: e.ID, Version: e.Version})
	}
	obj.Status.Inventory = &meta.ResourceInventory{Entries: entries}
}

// record notes in status.history how a pass ended. A pass that found nothing to do, or failed as the one before did, is
// not recorded: the status stays as it is, and no patch is sent.
func (r *run) record(err error) {
	began := r.memory.began
	r.memory.began = time.Time{}
	digest, status := r.memory.digest, meta.ReconciliationSucceededReason
	if err != nil {
		status = fault.Reason(err, meta.ReconciliationFailedReason)
	}
	if digest == "" {
		return
	}
	history := r.obj.Status.History
	if len(history) > 0 && !r.worked && history[0].Digest == digest && history[0].LastReconciledStatus == status {
		return
	}
	now := metav1.NewTime(r.Clock.Now())
	snapshot := kustomizev1.Snapshot{Digest: digest, LastReconciledStatus: status, FirstReconciled: now}
	if i := slices.IndexFunc(history, func(s kustomizev1.Snapshot) bool {
		return s.Digest == digest &&
			s.LastReconciledStatus == status
	}); i >= 0 {
		snapshot = history[i]
		history = slices.Delete(slices.Clone(history), i, i+1)
	}
	snapshot.LastReconciled = now
	snapshot.LastReconciledDuration = metav1.Duration{Duration: r.Clock.Since(began).Round(time.Microsecond)}
	snapshot.TotalReconciliations++
	snapshot.Metadata = map[string]string{"revision": r.source.Revision}
	if origin := r.source.OriginRevision(); origin != "" {
		snapshot.Metadata["originRevision"] = origin
	}
	history = append([]kustomizev1.Snapshot{snapshot}, history...)
	r.obj.Status.History = history[:min(len(history), maxHistory)]
}
