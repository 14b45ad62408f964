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
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gateapprovals,verbs=get;list;watch;create

const (
	// maxApprovals bounds how many approvals of a gate are counted, the newest ones.
	maxApprovals = 1000
	// enforcementDelay is how long the API server may take to enforce a new policy.
	enforcementDelay = 5 * time.Second
)

// addApprovals adds the approvals of a gate to the input. Unverified is not nil if the API server does not verify their
// authors; they do not count then.
func (c *Controller) addApprovals(ctx context.Context, g *gatingv1.Gate, in *verdict.Input) (unverified, err error) {
	if len(request.ApprovalRules(g)) == 0 && len(in.Failures) == 0 {
		return nil, nil
	}
	var list gatingv1.GateApprovalList
	if err := c.Client.List(ctx, &list, client.InNamespace(g.Namespace),
		client.MatchingFields{approvalGate: g.Name}); err != nil {
		return nil, fault.New(reconcile.ReasonFailed, "cannot list the approvals of the gate").Because(err)
	}
	if len(request.ApprovalRules(g)) == 0 && len(list.Items) == 0 {
		return nil, nil
	}
	slices.SortFunc(list.Items, func(a, b gatingv1.GateApproval) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	since, unverified := c.Authors.VerifyApprovals(ctx, g.Namespace)
	for _, a := range list.Items[:min(len(list.Items), maxApprovals)] {
		approval := verdict.Approval{
			Name: a.Name, User: a.Spec.User, Groups: a.Spec.Groups, At: a.CreationTimestamp.Time,
			Revision:  a.Spec.Revision,
			Changes:   a.Spec.Changes,
			Withdrawn: a.Spec.Withdrawn || !a.DeletionTimestamp.IsZero(),
		}
		if a.Spec.ExpiresAt != nil {
			approval.ExpiresAt = a.Spec.ExpiresAt.Time
		}
		switch {
		case unverified != nil:
			approval.Unverified = "its author is not verified, as the approval policy is not enforced"
		case !approval.At.After(since.Add(enforcementDelay)):
			approval.Unverified = "created before the approval policy took effect; approve again"
		}
		in.Approvals = append(in.Approvals, approval)
	}
	return unverified, nil
}

// approvalGate is the cache index of approvals by the gate that they are for.
const approvalGate = "spec.gateRef.name"

// ObserveApprovals indexes approvals by their gate, and enqueues the gate when an approval changes.
func ObserveApprovals(ctx context.Context, c cache.Cache, e *reconcile.Edges) error {
	enqueue := func(o any) {
		obj, _ := o.(client.Object)
		if a, ok := obj.(*gatingv1.GateApproval); ok {
			e.Enqueue(reconcile.RefTo(GroupKind, a.Namespace, a.Spec.GateRef.Name))
		}
	}
	err := c.IndexField(ctx, &gatingv1.GateApproval{}, approvalGate, guard.Indexer("indexing approvals",
		func(o client.Object) []string { return []string{o.(*gatingv1.GateApproval).Spec.GateRef.Name} }))
	if err != nil {
		return err
	}
	informer, err := c.GetInformer(ctx, &gatingv1.GateApproval{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(guard.EventHandler("observing approvals", toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue,
	}))
	return err
}
