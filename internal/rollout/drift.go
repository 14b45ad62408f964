package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// CorrectionRetry is the delay before a failed correction behind a closed gate is tried again.
const CorrectionRetry = time.Minute

// Drift reports drift of an owner's objects by the condition Drifted and events. It is kept between passes.
type Drift struct {
	contentions string // the last reported ones, without times and counts
}

// ReportDetected reports objects that drifted and are not corrected. changes is what an apply would change.
func (d *Drift) ReportDetected(obj reconcile.Object, r *Report, changes []apply.Change) {
	// An apply that would only change field ownership is not drift that a user can see.
	drifted := slices.DeleteFunc(Effective(changes),
		func(c apply.Change) bool { return c.Diff == "" && c.Action == apply.Configured })
	if len(drifted) == 0 {
		d.Resolve(obj, r)
		return
	}
	var lines []string
	for _, c := range drifted {
		how := "differs"
		if c.Action == apply.Created {
			how = "was deleted"
		}
		lines = append(lines, fmt.Sprintf("%s %s", c.Ref, how))
	}
	setDrifted(obj, r, meta.DriftDetectedReason, summarize(excerpt.Count(len(drifted), "object")+
		" drifted and spec.driftDetection.mode is warn: not corrected. An apply would change:", lines, drifted))
}

// ReportContentions reports the fields that other managers keep changing back; if there are none, it reports that drift
// is resolved.
func (d *Drift) ReportContentions(obj reconcile.Object, r *Report, contentions []apply.Contention) {
	if len(contentions) == 0 {
		d.Resolve(obj, r)
		return
	}
	var lines, keys []string
	for n, c := range contentions {
		keys = append(keys, fmt.Sprint(c.Ref, c.Fields, c.Managers))
		if n < maxNamed {
			lines = append(lines, describeContention(c))
		}
	}
	if more := len(contentions) - maxNamed; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	message := strings.Join(lines, "\n") + "\nLet only one manager set the field: list it in spec.ignore, or set the " +
		"annotation " + r.Owner.Group + "/ssa: Merge on the object and remove the field from the " +
		"declaration, or stop " +
		"the other manager"
	previous := d.contentions
	d.contentions = strings.Join(keys, "\n")
	if previous == d.contentions {
		reconcile.Mark(obj, meta.DriftedCondition, metav1.ConditionTrue, meta.DriftContestedReason, message)
		return
	}
	setDrifted(obj, r, meta.DriftContestedReason, message)
}

// describeContention returns which manager changes which fields of which object.
func describeContention(c apply.Contention) string {
	corrections := fmt.Sprintf("corrected %d times, paused until %s", c.Corrections,
		c.PausedUntil.UTC().Format("15:04:05"))
	if len(c.Fields) == 0 && len(c.Managers) == 0 {
		return fmt.Sprintf("%s is deleted repeatedly: %s", c.Ref, corrections)
	}
	who, what := "an unknown manager", "it"
	if len(c.Managers) > 0 {
		who = strings.Join(c.Managers, ", ")
	}
	if len(c.Fields) > 0 {
		what = strings.Join(c.Fields, ", ")
	}
	return fmt.Sprintf("%s: %s changes %s repeatedly: %s", c.Ref, who, what, corrections)
}

// setDrifted sets the condition Drifted, with an event if it changes.
func setDrifted(obj reconcile.Object, r *Report, reason, message string) {
	was := apimeta.FindStatusCondition(obj.CommonStatus().Conditions, meta.DriftedCondition)
	if was == nil || was.Status != metav1.ConditionTrue || was.Reason != reason || was.Message != message {
		r.Warn(reason, message)
	}
	reconcile.Mark(obj, meta.DriftedCondition, metav1.ConditionTrue, reason, message)
}

// Resolve sets the condition Drifted to False, with an event, if objects had drifted. An object that never drifted does
// not get the condition.
func (d *Drift) Resolve(obj reconcile.Object, r *Report) {
	d.contentions = ""
	if !apimeta.IsStatusConditionTrue(obj.CommonStatus().Conditions, meta.DriftedCondition) {
		return
	}
	const message = "all objects match what was applied"
	r.Note(meta.DriftResolvedReason, message)
	reconcile.Mark(obj, meta.DriftedCondition, metav1.ConditionFalse, meta.DriftResolvedReason, message)
}
