package kustomization

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// settle makes the cluster match what was built. Where the declarations are those that were applied to the
// end last, every difference is drift, and the mode says what becomes of it; a new declaration is applied
// whole.
func (r *run) settle(ctx context.Context, built *build.Result) error {
	r.drift = r.memory.standing == r.memory.digest
	switch {
	case r.drift && r.obj.DriftMode() == meta.DriftWarn:
		return r.look(ctx, built)
	case r.drift && r.obj.DriftMode() == meta.DriftDisabled:
		reconcile.Unmark(r.obj, meta.DriftedCondition)
		r.memory.finish()
		return nil
	}
	if err := r.apply(ctx, built); err != nil {
		return err
	}
	switch r.obj.DriftMode() {
	case meta.DriftDisabled:
		r.target.Cluster.Forget(r.owner()) // nobody is to be told of what moves
		reconcile.Unmark(r.obj, meta.DriftedCondition)
	case meta.DriftWarn:
		r.resolved()
	}
	return nil
}

// applied returns the digest of what a process before this one applied to the end; empty if that cannot be told.
func applied(obj *kustomizev1.Kustomization) string {
	s := obj.Status
	if len(s.History) == 0 || s.ObservedGeneration != obj.Generation ||
		s.LastAppliedRevision != s.LastAttemptedRevision ||
		s.History[0].LastReconciledStatus != meta.ReconciliationSucceededReason {
		return ""
	}
	return s.History[0].Digest
}

// look reports what is not as it was applied, and changes nothing.
func (r *run) look(ctx context.Context, built *build.Result) error {
	req, err := r.applyRequest(ctx, built)
	if err != nil {
		return err
	}
	planned, err := r.target.Cluster.DetectDrift(ctx, req)
	if err != nil {
		return err
	}
	if req.Resync {
		r.memory.resynced = r.Clock.Now()
	}
	r.memory.finish()
	// An apply that would only change who owns which fields is none that a person asks for.
	drifted := slices.DeleteFunc(effective(planned),
		func(c apply.Change) bool { return c.Diff == "" && c.Action == apply.Configured })
	if len(drifted) > 0 {
		r.report(meta.DriftDetectedReason, drifts(drifted))
	} else {
		r.resolved()
	}
	return nil
}

// drifts words what applying would change back.
func drifts(planned []apply.Change) string {
	var lines []string
	for _, c := range planned {
		became := "differs"
		if c.Action == apply.Created {
			became = "is gone"
		}
		lines = append(lines, fmt.Sprintf("%s %s", c.Ref, became))
	}
	return told(fmt.Sprintf("%d of the applied objects drifted, and spec.driftDetection.mode says to leave them. "+
		"Applying them would change:", len(planned)), lines, planned)
}

// contested reports the fields that others fight with us for.
func (r *run) contested() {
	if r.obj.DriftMode() != meta.DriftEnabled {
		return
	}
	fights := r.target.Cluster.Contentions(r.owner())
	if len(fights) == 0 {
		r.resolved()
		return
	}
	var lines, about []string
	for n, f := range fights {
		about = append(about, fmt.Sprint(f.Ref, f.Fields, f.Managers))
		if n < maxNamed {
			lines = append(lines, fmt.Sprintf("%s was corrected %d times, and is left as it is until %s", fight(f),
				f.Corrections, f.PausedUntil.UTC().Format("15:04:05")))
		}
	}
	if more := len(fights) - maxNamed; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	message := strings.Join(lines, "\n") + "\nLet one of the two have the field: list it in spec.ignore, set the " +
		"annotation " +
		kustomizev1.GroupVersion.Group + "/ssa: Merge on the object and leave the field out, or stop the other manager"
	was := r.memory.contests
	r.memory.contests = strings.Join(about, "\n")
	if was == r.memory.contests {
		reconcile.Mark(r.obj, meta.DriftedCondition, metav1.ConditionTrue, meta.DriftContestedReason, message)
		return
	}
	r.report(meta.DriftContestedReason, message)
}

// fight says who changes what.
func fight(f apply.Contention) string {
	who := "somebody who leaves no name"
	if len(f.Managers) > 0 {
		who = strings.Join(f.Managers, ", ")
	}
	if len(f.Fields) == 0 && len(f.Managers) == 0 {
		return fmt.Sprintf("%s is deleted again and again: it", f.Ref)
	}
	what := "it"
	if len(f.Fields) > 0 {
		what = strings.Join(f.Fields, ", ")
	}
	return fmt.Sprintf("%s: %s changes %s again and again: it", f.Ref, who, what)
}

// report sets the condition Drifted, with an event if it says something new.
func (r *run) report(reason, message string) {
	was := apimeta.FindStatusCondition(r.obj.Status.Conditions, meta.DriftedCondition)
	if was == nil || was.Status != metav1.ConditionTrue || was.Reason != reason || was.Message != message {
		r.events = append(r.events, event{warning: true, reason: reason, message: message})
	}
	reconcile.Mark(r.obj, meta.DriftedCondition, metav1.ConditionTrue, reason, message)
}

// resolved takes the condition Drifted away, with an event if there was one.
func (r *run) resolved() {
	r.memory.contests = ""
	if apimeta.IsStatusConditionTrue(r.obj.Status.Conditions, meta.DriftedCondition) {
		r.events = append(r.events, event{reason: meta.DriftResolvedReason,
			message: "all objects are as they were applied"})
	}
	reconcile.Unmark(r.obj, meta.DriftedCondition)
}
