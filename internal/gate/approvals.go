package gate

import (
	"cmp"
	"context"
	"slices"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gateapprovals,verbs=get;list;watch;create

// maxApprovals bounds how many approvals of a gate are counted, the newest ones.
const maxApprovals = 1000

// enforced is how long the API server may take to enforce a policy that is new.
const enforced = 5 * time.Second

// approvals adds the approvals of a gate to its case. The doubt is that the API server does not vouch for
// their authors.
func (s *Gate) approvals(ctx context.Context, g *gatingv1.Gate, c *verdict.Case) (doubt, err error) {
	if c.Rule == nil {
		return nil, nil
	}
	var list gatingv1.GateApprovalList
	if err := s.Client.List(ctx, &list, client.InNamespace(g.Namespace),
		client.MatchingFields{approvalGate: g.Name}); err != nil {
		return nil, fault.New(reconcile.ReasonFailed, "the approvals cannot be listed").Because(err)
	}
	slices.SortFunc(list.Items, func(a, b gatingv1.GateApproval) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	since, doubt := s.Vouch.Approvals(ctx, g.Namespace)
	for _, a := range list.Items[:min(len(list.Items), maxApprovals)] {
		approval := verdict.Approval{
			Name: a.Name, User: a.Spec.User, Groups: a.Spec.Groups, At: a.CreationTimestamp.Time,
			Revision:  a.Spec.Revision,
			Withdrawn: a.Spec.Withdrawn || !a.DeletionTimestamp.IsZero(),
		}
		if a.Spec.ExpiresAt != nil {
			approval.ExpiresAt = a.Spec.ExpiresAt.Time
		}
		switch {
		case doubt != nil:
			approval.Distrust = "the API server does not vouch for its author"
		case !approval.At.After(since.Add(enforced)):
			approval.Distrust = "it is not younger than the policy by which the API server vouches for authors"
		}
		c.Approvals = append(c.Approvals, approval)
	}
	return doubt, nil
}

// approvalGate indexes approvals by the gate that they are for.
const approvalGate = "spec.gateRef.name"

// ObserveApprovals wakes gates whose approvals come, change or go, and lets them find theirs.
func ObserveApprovals(ctx context.Context, c cache.Cache, e *reconcile.Edges) error {
	wake := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if a, ok := o.(*gatingv1.GateApproval); ok {
			e.Enqueue(reconcile.RefTo(groupKind, a.Namespace, a.Spec.GateRef.Name))
		}
	}
	err := c.IndexField(ctx, &gatingv1.GateApproval{}, approvalGate, func(o client.Object) []string {
		return []string{o.(*gatingv1.GateApproval).Spec.GateRef.Name}
	})
	if err != nil {
		return err
	}
	informer, err := c.GetInformer(ctx, &gatingv1.GateApproval{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake,
	})
	return err
}
