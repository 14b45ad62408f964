package gate

import (
	"cmp"
	"context"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates/finalizers,verbs=get;create;update;patch;delete

// Gate opens and closes gates.
type Gate struct {
	Client client.Client // reads gates and approvals from the cache
	Edges  *reconcile.Edges
	Clock  clock.WithDelayedExecution
	Vouch  *Voucher
	Checks *Checks
	// Waiting returns the objects that wait at a gate, most of them at most, and how many there are.
	Waiting func(gate types.NamespacedName, most int) ([]gatingv1.WaitingObject, int64)

	alarms alarms
}

// GroupKind identifies the kind to the kernel.
var GroupKind = groupKind

// References implements [reconcile.Step]. Approvals wake their gate, and checks look for themselves.
func (s *Gate) References(*gatingv1.Gate) []reconcile.Ref { return nil }

// Reconcile implements [reconcile.Step].
func (s *Gate) Reconcile(ctx context.Context, pass *reconcile.Pass[*gatingv1.Gate]) reconcile.Outcome {
	g := pass.Object
	now := s.Clock.Now()
	g.Status.Waiting, g.Status.WaitingCount = s.Waiting(client.ObjectKeyFromObject(g), gatingv1.MaxWaiting)
	r, err := s.judge(ctx, g, now)
	if err != nil {
		r.Verdict = verdict.Verdict{Reason: fault.Reason(err, reconcile.ReasonFailed), Message: "Gate closed: " +
			err.Error(), Why: err.Error()}
	}
	s.alarms.set(s.Clock, g.UID, r.look, now, func() { s.Edges.Enqueue(ref(g)) })
	problem := cmp.Or(err, r.doubt)
	turned := show(g, r.Verdict, problem, now)
	observe(g, turned)
	outcome := reconcile.Ready(meta.ReconciliationSucceededReason, "Gate reconciled")
	if problem != nil {
		outcome = reconcile.Failed(problem)
	}
	if turned != nil {
		outcome = announce(outcome, turned)
	}
	return outcome
}

// Finalize implements [reconcile.Step]: objects that wait stay held, since a gate that is not there lets
// nothing through.
func (s *Gate) Finalize(_ context.Context, g *gatingv1.Gate) error {
	s.alarms.stop(g.UID)
	s.Checks.Forget(g.UID)
	forget(g)
	return nil
}

// ruling is the verdict on a gate.
type ruling struct {
	verdict.Verdict
	look  time.Time // when to look again; zero: when something happens
	doubt error     // what is wrong although there is a verdict
}

func (s *Gate) judge(ctx context.Context, g *gatingv1.Gate, now time.Time) (ruling, error) {
	c, err := Case(g)
	if err != nil {
		return ruling{}, err
	}
	if err := s.circle(ctx, g); err != nil {
		return ruling{}, err
	}
	unsigned := s.vouched(ctx, g, &c)
	doubt, err := s.approvals(ctx, g, &c)
	if err != nil {
		return ruling{}, err
	}
	results, due, err := s.Checks.Look(g, now)
	if err != nil {
		return ruling{}, err
	}
	g.Status.Checks = results
	for _, r := range results {
		c.Checks = append(c.Checks, verdict.Check{Name: r.Name, Holds: r.Holds, Message: r.Message})
	}
	v := verdict.Of(c, now)
	return ruling{v, earliest(v.Look, due), cmp.Or(unsigned, doubt)}, nil
}

// show writes a verdict into the status, and returns the transition if it is one.
func show(g *gatingv1.Gate, v verdict.Verdict, problem error, now time.Time) *gatingv1.HistoryEntry {
	was := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
	status, reason := metav1.ConditionFalse, meta.ReconciliationSucceededReason
	if v.Open {
		status = metav1.ConditionTrue
	}
	switch {
	case problem != nil && !v.Open:
		reason = fault.Reason(problem, reconcile.ReasonFailed)
	case v.Reason == gatingv1.WhyCheckFailed, v.Reason == gatingv1.WhyApprovalRequired:
		reason = v.Reason
	}
	turned := was == nil || was.Status != status ||
		(v.Reason == gatingv1.WhyOverridden) != (g.Status.Why != nil && g.Status.Why.Reason == gatingv1.WhyOverridden)
	reconcile.Mark(g, gatingv1.OpenedCondition, status, reason, v.Message)
	g.Status.Why = &gatingv1.Explanation{Reason: v.Reason, Message: v.Why}
	g.Status.RequestedAt, g.Status.ResetToDefaultAt = timeOf(v.RequestedAt), timeOf(v.ResetAt)
	g.Status.ApprovedRevisions, g.Status.Approvals = v.Revisions, v.Approvals
	g.Status.NextTransition = nil
	if !v.Next.IsZero() {
		g.Status.NextTransition = &gatingv1.Transition{At: meta.TimeOf(v.Next), State: verdict.State(!v.Open)}
	}
	if !turned {
		return nil
	}
	entry := gatingv1.HistoryEntry{
		At: meta.TimeOf(now), State: verdict.State(v.Open), Reason: v.Reason, Message: v.Why, By: v.By, From: v.From,
		Revisions: v.Revisions,
	}
	history := append([]gatingv1.HistoryEntry{entry}, g.Status.History...)
	g.Status.History = slices.Clip(history[:min(len(history), gatingv1.MaxHistory)])
	return &entry
}

func timeOf(t time.Time) *meta.Time {
	if t.IsZero() {
		return nil
	}
	return &meta.Time{Time: t}
}

func ref(g *gatingv1.Gate) reconcile.Ref { return reconcile.RefTo(groupKind, g.Namespace, g.Name) }

// earliest returns the first of times that are set.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
