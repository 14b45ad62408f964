// Package gate is the controller of Gates. It also has the [Index] that holds objects back while a gate is closed, and
// the [AuthorVerifier] of approvals. Whether a gate is open is decided in package verdict.
package gate

import (
	"cmp"
	"context"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates/finalizers,verbs=get;create;update;patch;delete

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: gatingv1.GroupVersion.Group, Kind: gatingv1.GateKind}

// Controller is the domain step of the kind.
type Controller struct {
	Client  client.Client // reads gates and approvals from the cache
	Edges   *reconcile.Edges
	Clock   clock.WithDelayedExecution
	Authors *AuthorVerifier
	Checks  *Checks
	// Waiting returns the objects that wait for a gate, at most limit, and how many there are in total.
	Waiting func(gate types.NamespacedName, limit int) ([]gatingv1.WaitingObject, int64)
	// CheckRules returns why the rules of the gate are invalid.
	CheckRules func(g *gatingv1.Gate) error
	// CheckSelection returns why the gate selects less than its selector names.
	CheckSelection func(ctx context.Context, g *gatingv1.Gate) error
	// GatesOfMembers visits the gates which hold the objects of a check of revisions.
	GatesOfMembers func(ctx context.Context, s *memberSelector, visit func(member, gate reconcile.Ref))

	Seals *seal.Key
	// Observed is what objects have that gates with spec.onFailure watch.
	Observed *Observed
	// Waves returns how far revisions have come through the waves of a gate, and when that changes next.
	Waves func(g *gatingv1.Gate) ([]gatingv1.WaveProgress, time.Time, error)

	timers timers
	sealer sealer
}

// References implements [reconcile.Step]. Approvals and checks enqueue their gate without edges.
func (c *Controller) References(*gatingv1.Gate) []reconcile.Ref { return nil }

// Reconcile implements [reconcile.Step].
func (c *Controller) Reconcile(ctx context.Context, pass *reconcile.Pass[*gatingv1.Gate]) reconcile.Outcome {
	g := pass.Object
	now := c.Clock.Now()
	g.Status.Waiting, g.Status.WaitingCount = c.Waiting(client.ObjectKeyFromObject(g), gatingv1.MaxWaiting)
	if !c.sealer.verify(c.Seals, g) {
		g.Status.Checks, g.Status.Failures = nil, nil
	}
	g.Status.Failures = c.failures(ctx, g, now)
	g.Status.ApprovedChanges = nil
	waves, soaked, tooMany := c.Waves(g)
	g.Status.Waves = waves
	d, err := c.decide(ctx, g, now)
	if err = cmp.Or(err, tooMany); err != nil {
		d.Verdict = errorVerdict(err, g.Status.Failures)
	}
	d.next = earliest(d.next, soaked)
	c.timers.set(c.Clock, g.UID, d.next, now, func() { c.Edges.Enqueue(refOf(g)) })
	problem := cmp.Or(err, d.problem)
	transition := setStatus(g, d.Verdict, problem, now)
	c.sealer.seal(c.Seals, g, now)
	recordMetrics(g, transition)
	outcome := reconcile.Ready(meta.ReconciliationSucceededReason, "Gate reconciled")
	if problem != nil {
		outcome = reconcile.Failed(problem)
	}
	if transition != nil {
		outcome = withEvent(outcome, transition)
	}
	return outcome
}

// Finalize implements [reconcile.Step]. Objects that refer to the gate stay held, as a gate that does not exist allows
// nothing.
func (c *Controller) Finalize(_ context.Context, g *gatingv1.Gate) error {
	c.Leave(g)
	return nil
}

// Leave implements [reconcile.Leaver].
func (c *Controller) Leave(g *gatingv1.Gate) {
	c.timers.stop(g.UID)
	c.Checks.Forget(g.UID)
	c.sealer.forget(g.UID)
	deleteMetrics(g)
}

// evaluation is a verdict, and what the controller does about it.
type evaluation struct {
	verdict.Verdict
	next    time.Time // when the verdict may change; zero: not before an event
	problem error     // an error in spite of which there is a verdict
}

func (c *Controller) decide(ctx context.Context, g *gatingv1.Gate, now time.Time) (evaluation, error) {
	in, err := InputOf(g)
	if err != nil {
		return evaluation{}, err
	}
	if err := c.CheckRules(g); err != nil {
		return evaluation{}, err
	}
	if err := c.checkCycle(ctx, g); err != nil {
		return evaluation{}, err
	}
	unverifiedRequests := c.dropUnverifiedRequests(ctx, g, &in)
	c.refuse(g, &in, now)
	unverifiedApprovals, err := c.addApprovals(ctx, g, &in)
	if err != nil {
		return evaluation{}, err
	}
	results, due, err := c.Checks.Run(g, now)
	if err != nil {
		return evaluation{}, err
	}
	g.Status.Checks = results
	for i, r := range results {
		in.Checks = append(in.Checks, checkOf(g.Spec.Checks[i], r, now))
	}
	v := verdict.Of(in, now)
	changes, expiry := approvedChanges(g, in, latest(in.ClosedAt(now), v.HeldSince), now)
	g.Status.ApprovedChanges = c.bounded(g, changes)
	if request.RequiresChanges(g) {
		v.Approvals = observer(g, in).Observe(in.Approvals, in.ClosedAt(now), now)
	}
	return evaluation{Verdict: v, next: earliest(v.Review, due, expiry),
		problem: cmp.Or(unverifiedRequests, unverifiedApprovals, c.CheckSelection(ctx, g))}, nil
}

// errorVerdict returns the verdict on a gate that cannot be evaluated: closed.
func errorVerdict(err error, failures []gatingv1.FailedChange) verdict.Verdict {
	return verdict.Verdict{Failures: failures, Reason: fault.Reason(err, reconcile.ReasonFailed),
		Message: "Gate closed: " + err.Error(), Why: err.Error()}
}

// setStatus writes a verdict to the status, and returns the transition if the state changed.
func setStatus(g *gatingv1.Gate, v verdict.Verdict, problem error, now time.Time) *gatingv1.HistoryEntry {
	previous := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition)
	status, reason := metav1.ConditionFalse, meta.ReconciliationSucceededReason
	if v.Open {
		status = metav1.ConditionTrue
	}
	switch {
	case problem != nil && !v.Open:
		reason = fault.Reason(problem, reconcile.ReasonFailed)
	case v.Reason == gatingv1.WhyCheckFailed, v.Reason == gatingv1.WhyApprovalRequired,
		v.Reason == gatingv1.WhyRevisionFailed:
		reason = v.Reason
	}
	changed := previous == nil || previous.Status != status ||
		(v.Reason == gatingv1.WhyOverridden) != decision.IsOverridden(g) ||
		v.Open && decision.ChecksRevisions(g) && !slices.Equal(v.Revisions, g.Status.ApprovedRevisions)
	reconcile.Mark(g, gatingv1.OpenedCondition, status, reason, v.Message)
	g.Status.Why = &gatingv1.Explanation{Reason: v.Reason, Message: v.Why}
	g.Status.RequestedAt, g.Status.ResetToDefaultAt = timeOrNil(v.RequestedAt), timeOrNil(v.ResetAt)
	g.Status.ApprovedRevisions, g.Status.Approvals, g.Status.Failures = v.Revisions, v.Approvals, v.Failures
	g.Status.NextTransition = nil
	if !v.Next.IsZero() {
		g.Status.NextTransition = &gatingv1.Transition{At: meta.TimeOf(v.Next), State: verdict.State(!v.Open)}
	}
	if !changed {
		if h := g.Status.History; len(h) > 0 && h[0].At.After(now) {
			h[0].At = meta.TimeOf(now) // the clock was set back; the state holds at this time, too
		}
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

func timeOrNil(t time.Time) *meta.Time {
	if t.IsZero() {
		return nil
	}
	return &meta.Time{Time: t}
}

func refOf(g *gatingv1.Gate) reconcile.Ref { return reconcile.RefTo(GroupKind, g.Namespace, g.Name) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest returns the earliest of the non-zero times.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
