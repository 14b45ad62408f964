package gate

import (
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

// checkOf returns the result of a check for the verdict. A soak that has ended at now does not promote its revision
// before the check has run again.
func checkOf(c gatingv1.Check, r gatingv1.CheckResult, now time.Time) verdict.Check {
	out := verdict.Check{Name: r.Name, Passes: r.Holds, Message: r.Message}
	if c.Revision == nil && c.Clusters == nil || passesWithoutHub(c, r) {
		return out
	}
	out.Promotion = &verdict.Promotion{}
	o := r.Revision
	if o == nil {
		out.Passes = false
		return out
	}
	if r.Holds {
		out.Promotion.Revision = o.Promoted
	}
	isCurrent := o.ObservedAt != nil && o.ObservedAt.Unix() == r.CheckedAt.Unix()
	if o.Until != nil && isCurrent && o.Until.After(now) {
		out.Promotion.Next, out.Promotion.NextAt = o.Ready, o.Until.Time
	}
	return out
}
