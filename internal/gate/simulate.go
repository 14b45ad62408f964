package gate

import (
	"cmp"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/gate/waves"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Simulate returns a copy of a gate with the status that it will have at a time if nothing is changed until then:
// schedule, requests and windows are evaluated for that time; approvals and checks are taken from the current status.
// [decision.Allows] reports what the copy allows.
func Simulate(g *gatingv1.Gate, at time.Time) *gatingv1.Gate {
	g = g.DeepCopy()
	g.Status.ObservedGeneration = g.Generation
	in, err := InputOf(g)
	if err == nil {
		err = observedFault(g)
	}
	if err != nil {
		setStatus(g, errorVerdict(err, g.Status.Failures), err, at)
		return g
	}
	if ready := apimeta.FindStatusCondition(g.Status.Conditions, reconcile.TypeReady); ready != nil &&
		ready.Reason == gatingv1.PolicyMissingReason {
		in.Requests.Override = nil // its author is not verified
	}
	in.Approvals, in.Checks = observed(g)
	if in.Rule != nil {
		in.Rule.Users, in.Rule.Groups = nil, nil // the status lists which approvals count
	}
	setStatus(g, verdict.Of(in, at), nil, at)
	return g
}

// Selects reports whether a gate selects an object of a kind. According to its status, the gate may select objects of
// its own namespace only. namespaces returns the labels of a namespace, and whether they could be read.
func Selects(g *gatingv1.Gate, kind string, obj reconcile.Gated,
	namespaces func(name string) (labels.Set, bool)) bool {
	s := newSelector(g)
	if s == nil {
		return false
	}
	ready := apimeta.FindStatusCondition(g.Status.Conditions, reconcile.TypeReady)
	s.confined = reachesOthers(g) && ready != nil && ready.Reason == meta.AccessDeniedReason
	return s.matches(&Index{Namespace: namespaces}, reconcile.Ref{GroupKind: schema.GroupKind{Kind: kind}}, obj)
}

// Asker returns an object as it asks gates, by its status.
func Asker(obj reconcile.Gated) decision.Object {
	o := decision.Object{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if source, ok := sourceOf(obj); ok {
		o.Kind = source.kind
	}
	if a := obj.Held().Admitted; a != nil {
		o.Taken = a.Revision
	}
	return o
}

// Turn returns why the waves of a gate hold a revision of an object at a time; empty if they do not. It is what the
// status of the gate says, and assumes that objects stay as they are. A revision that is not known has not begun.
func Turn(g *gatingv1.Gate, obj reconcile.Gated, revision string, at time.Time) decision.Cause {
	list, selectors, err := wavesOf(g)
	source, isDivided := sourceOf(obj)
	if err != nil || len(list) == 0 || !isDivided {
		return decision.Cause{}
	}
	own, d := waveOf(selectors, obj), waves.Decision{State: waves.State{Revision: revision}}
	for _, p := range g.Status.Waves {
		if revision == "" || p.Revision != revision || (sourceKey{kind: p.Kind, source: p.Source}) != source {
			continue
		}
		if d.Current = slices.IndexFunc(list, func(w waves.Wave) bool { return w.Name == p.Wave }); p.Complete {
			d.Current = len(list)
		}
		if p.Until != nil && at.Before(p.Until.Time) {
			d.Until = p.Until.Time
		} else if p.Until != nil {
			d.Current++
		}
	}
	if d.Current > own || d.Current == own && list[own].Max == nil && d.Until.IsZero() {
		return decision.Cause{}
	}
	return d.Waits(list, &waves.Member{Wave: own}, revision)
}

// observedFault returns the terminal error that the controller found by reading other objects than the gate;
// nil if there is none.
func observedFault(g *gatingv1.Gate) error {
	ready := apimeta.FindStatusCondition(g.Status.Conditions, reconcile.TypeReady)
	if ready != nil && slices.Contains([]string{gatingv1.CheckCycleReason, gatingv1.InvalidCheckReason}, ready.Reason) {
		return fault.New(ready.Reason, "%s", ready.Message).Final()
	}
	return nil
}

// observed returns the approvals and check results in the status of a gate. A check that has not run since the spec
// changed does not pass.
func observed(g *gatingv1.Gate) ([]verdict.Approval, []verdict.Check) {
	var approvals []verdict.Approval
	for _, a := range g.Status.Approvals {
		approval := verdict.Approval{Name: a.Name, User: a.User, At: a.At.Time, Revision: a.Revision}
		if a.Until != nil {
			approval.ExpiresAt = a.Until.Time
		}
		if !a.Counts {
			approval.Unverified = cmp.Or(a.Message, "does not count")
		}
		approvals = append(approvals, approval)
	}
	var checks []verdict.Check
	for _, c := range g.Spec.Checks {
		check := checkOf(c, gatingv1.CheckResult{Name: c.Name, Message: notRunYet}, time.Time{})
		for _, r := range g.Status.Checks {
			if r.Name == c.Name && r.Generation == g.Generation {
				check = checkOf(c, r, r.CheckedAt.Time)
			}
		}
		checks = append(checks, check)
	}
	return approvals, checks
}
