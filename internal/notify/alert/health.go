package alert

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// SendFailedReason is the reason of a Provider whose last attempt to send an event failed.
const SendFailedReason = "SendFailed"

// Health holds the Providers whose last attempt failed. A Provider is reconciled when its failure changes.
type Health struct {
	Edges *reconcile.Edges

	mu      sync.Mutex
	failing map[types.NamespacedName]*fault.Fault
}

// Report records the result of an attempt, and enqueues the Provider if the result differs from the last one.
func (h *Health) Report(key types.NamespacedName, err error) {
	if h.record(key, err) {
		h.Edges.Enqueue(reconcile.Ref{GroupKind: ProviderGroupKind, NamespacedName: key})
	}
}

// record reports whether the result differs from the last one.
func (h *Health) record(key types.NamespacedName, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.failing[key]
	if err == nil {
		delete(h.failing, key)
		return last != nil
	}
	if h.failing == nil {
		h.failing = map[types.NamespacedName]*fault.Fault{}
	}
	f := fault.As(err)
	if f == nil {
		f = fault.New(SendFailedReason, "the event was not sent").Because(err)
	}
	h.failing[key] = f
	// The cause is not compared: it may contain values that differ in each attempt, such as a time to wait.
	return last == nil || last.Reason != f.Reason || last.What != f.What
}

// Err returns the failure of a Provider, or nil.
func (h *Health) Err(key types.NamespacedName) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.failing[key]; f != nil {
		return f
	}
	return nil
}

// Forget removes the failure of a Provider that was deleted or changed.
func (h *Health) Forget(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failing, key)
}
