package release

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Gates holds jobs by the gates of their automation, beside those that select the job itself: nobody gets
// around a gate by a job.
type Gates struct {
	reconcile.Gatekeeper
	Objects client.Reader // the cache
}

// GatesFor implements [reconcile.Gatekeeper].
func (g Gates) GatesFor(ref reconcile.Ref, obj reconcile.Gated) []reconcile.Ref {
	over := g.Gatekeeper.GatesFor(ref, obj)
	if a := g.automation(obj); a != nil {
		for _, gate := range g.Gatekeeper.GatesFor(reconcile.RefTo(automate.GroupKind, a.Namespace, a.Name), a) {
			if !slices.Contains(over, gate) {
				over = append(over, gate)
			}
		}
	}
	return over
}

// ClosedGates implements [reconcile.Gatekeeper].
func (g Gates) ClosedGates(over []reconcile.Ref, obj reconcile.Gated, manual bool) []reconcile.ClosedGate {
	if a := g.automation(obj); a != nil {
		return g.Gatekeeper.ClosedGates(over, a, manual) // whose references they may be
	}
	return g.Gatekeeper.ClosedGates(over, obj, manual)
}

// automation is that of a job that is yet to run; nil if it is not there.
func (g Gates) automation(obj reconcile.Gated) *imagev1.ImageUpdateAutomation {
	job, ok := obj.(*imagev1alpha1.ImageUpdateJob)
	if !ok || job.Status.CompletionTime != nil {
		return nil
	}
	a := &imagev1.ImageUpdateAutomation{}
	if err := g.Objects.Get(context.Background(),
		client.ObjectKey{Namespace: job.Namespace, Name: job.Spec.AutomationRef.Name}, a); err != nil {
		return nil // then the job waits for it
	}
	return a
}
