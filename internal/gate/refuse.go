package gate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// unverified stands for a requester whose name the API server did not verify.
const unverified = "an unverified user"

// refuse records that a person makes an object go back from what the gate let through. What the object has is sealed:
// a request that names another revision does nothing. A request that was handled is not repeated, so that the revision
// can be allowed again.
func (c *Controller) refuse(g *gatingv1.Gate, in *verdict.Input, now time.Time) {
	r := in.Requests.Refuse
	at := g.Annotations[gatingv1.RefuseRequestedAtAnnotation]
	if r == nil || !in.Reverts || r.At.After(now) || now.Sub(r.At) > gatingv1.RefuseLapse ||
		at == g.Status.HandledRefusal {
		return
	}
	ref, has := c.Observed.admitted(client.ObjectKeyFromObject(g), r.Object)
	if has == nil {
		return // not reconciled since the start of the process: this enqueues the gate
	}
	g.Status.HandledRefusal = at
	if has.Admitted == nil || has.Reverted != nil || !decision.Names(r.Revision, has.Admitted.Revision) {
		return
	}
	since := meta.TimeOf(r.At.UTC())
	f := gatingv1.FailedChange{Revision: has.Admitted.Revision, Change: has.Admitted.Change, Since: since,
		ResolvedAt: &since, RefusedBy: cmp.Or(r.By, unverified), Objects: []gatingv1.FailedObject{failedObject(ref)}}
	f.Message = fmt.Sprintf("%s made %s '%s' go back", f.RefusedBy, ref.Kind, ref.NamespacedName)
	if r.Reason != "" {
		f.Message += ": " + r.Reason
	}
	in.Failures = slices.Insert(slices.Clone(in.Failures), 0, f)
	in.Failures = in.Failures[:min(len(in.Failures), gatingv1.MaxFailures)]
}
