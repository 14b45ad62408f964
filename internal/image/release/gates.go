package release

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// Gates holds jobs by the gates of their automation too, so that a job does not bypass them.
type Gates struct {
	reconcile.Gatekeeper
	Objects client.Reader // the cache
}

// GatesFor implements [reconcile.Gatekeeper].
func (g Gates) GatesFor(ref reconcile.Ref, obj reconcile.Gated) []reconcile.Ref {
	over := g.Gatekeeper.GatesFor(ref, obj)
	if a := g.automation(obj); a != nil {
		for _, gate := range g.Gatekeeper.GatesFor(reconcile.RefTo(automationGroupKind, a.Namespace, a.Name), a) {
			if !slices.Contains(over, gate) {
				over = append(over, gate)
			}
		}
	}
	return over
}

// Snapshot implements [reconcile.Gatekeeper].
func (g Gates) Snapshot(over []reconcile.Ref, obj reconcile.Gated) []decision.Gate {
	if a := g.automation(obj); a != nil {
		return g.Gatekeeper.Snapshot(over, a) // the automation may be what refers to a gate
	}
	return g.Gatekeeper.Snapshot(over, obj)
}

// automation returns the automation of a job that has not run yet; nil if it does not exist. The job waits for it then.
func (g Gates) automation(obj reconcile.Gated) *imagev1.ImageUpdateAutomation {
	job, ok := obj.(*imagev1alpha1.ImageUpdateJob)
	if !ok || job.Status.CompletionTime != nil {
		return nil
	}
	a := &imagev1.ImageUpdateAutomation{}
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Spec.AutomationRef.Name}
	if err := g.Objects.Get(context.Background(), key, a); err != nil {
		return nil
	}
	return a
}
