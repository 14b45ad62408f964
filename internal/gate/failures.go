package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// failures returns the changes that a gate let through and that became unhealthy, newest first: those that its status
// lists, and what its objects report. The status is sealed, as is what the objects report, so both survive a restart.
func (c *Controller) failures(ctx context.Context, g *gatingv1.Gate, now time.Time) []gatingv1.FailedChange {
	if g.Spec.OnFailure == "" {
		return nil
	}
	key, soak := client.ObjectKeyFromObject(g), g.GetSoak()
	var list []gatingv1.FailedChange
	for _, f := range g.Status.Failures {
		list = append(list, *f.DeepCopy())
	}
	refs, has := c.Observed.failing(key, soak)
	for _, ref := range refs {
		list = addFailure(list, ref, has[ref].Admitted, func(o gatingv1.FailedObject) bool {
			return c.Observed.of(key, o, soak) == recoveredState
		})
	}
	if g.Spec.OnFailure == gatingv1.OnFailureRevert {
		list = addReverted(list, c.Observed.reverted(key))
	}
	for i := range list {
		f := &list[i]
		if f.RefusedBy != "" {
			continue // nothing failed
		}
		switch isResolved := c.isResolved(ctx, key, f, soak); {
		case !isResolved:
			f.ResolvedAt = nil
		case f.ResolvedAt == nil:
			f.ResolvedAt = &meta.Time{Time: now.UTC().Truncate(time.Second)}
		}
	}
	if g.Spec.OnFailure == gatingv1.OnFailureHold {
		list = slices.DeleteFunc(list, func(f gatingv1.FailedChange) bool { return f.ResolvedAt != nil })
	}
	slices.SortStableFunc(list, func(a, b gatingv1.FailedChange) int { return b.Since.Compare(a.Since.Time) })
	return list[:min(len(list), gatingv1.MaxFailures)]
}

// addFailure adds what an object has to a list of failures. If a failure lists as many objects as it may, the object
// takes the place of one that recovered, so that a failure is not resolved while one of its objects is unhealthy.
func addFailure(list []gatingv1.FailedChange, ref reconcile.Ref, a *meta.Admitted,
	recovered func(gatingv1.FailedObject) bool) []gatingv1.FailedChange {
	object := failedObject(ref)
	for i := range list {
		f := &list[i]
		if f.RefusedBy != "" || f.Revision != a.Revision || f.Change != a.Change ||
			f.Change != "" && !slices.Contains(f.Objects, object) {
			continue
		}
		switch {
		case slices.Contains(f.Objects, object):
		case len(f.Objects) < gatingv1.MaxFailedObjects:
			f.Objects = append(f.Objects, object)
		default:
			if i := slices.IndexFunc(f.Objects, recovered); i >= 0 {
				f.Objects[i] = object
			}
		}
		if f.ResolvedAt != nil && a.Failure.At.After(f.ResolvedAt.Time) { // it failed again
			f.Since, f.Message = a.Failure.At, failureMessage(ref, a)
		}
		return list
	}
	return append(list, gatingv1.FailedChange{Revision: a.Revision, Change: a.Change, Since: a.Failure.At,
		Message: failureMessage(ref, a), Objects: []gatingv1.FailedObject{object}})
}

// addReverted adds what objects went back from to a list of failures that may have lost it.
func addReverted(list, reverted []gatingv1.FailedChange) []gatingv1.FailedChange {
	for _, r := range reverted {
		if !slices.ContainsFunc(list, func(f gatingv1.FailedChange) bool { return covers(f, r) }) {
			list = append(list, r)
		}
	}
	return list
}

// covers reports whether a gate that refuses a change refuses all that another one does.
func covers(f, other gatingv1.FailedChange) bool {
	if f.Revision != other.Revision || f.Change != other.Change {
		return false
	}
	return f.RefusedBy == "" || other.RefusedBy != "" && !slices.ContainsFunc(other.Objects,
		func(o gatingv1.FailedObject) bool { return !slices.Contains(f.Objects, o) })
}

// failureMessage names the object that failed, and the cause.
func failureMessage(ref reconcile.Ref, a *meta.Admitted) string {
	cause, _, _ := strings.Cut(a.Failure.Message, "\n")
	return fmt.Sprintf("%s '%s' is unhealthy: %s", ref.Kind, ref.NamespacedName, cause)
}

// isResolved reports whether none of the objects that a change made unhealthy is so still.
func (c *Controller) isResolved(ctx context.Context, gate types.NamespacedName, f *gatingv1.FailedChange,
	soak time.Duration) bool {
	for _, o := range f.Objects {
		switch c.Observed.of(gate, o, soak) {
		case failingState:
			return false
		case unknownState:
			if c.exists(ctx, o) {
				return false // it has not been reconciled since the start of the process
			}
		case recoveredState:
		}
	}
	return true
}

// exists reports whether an object that failed still exists, as far as that is known.
func (c *Controller) exists(ctx context.Context, o gatingv1.FailedObject) bool {
	var obj client.Object = &kustomizev1.Kustomization{}
	if o.Kind == helmv2.HelmReleaseKind {
		obj = &helmv2.HelmRelease{}
	}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, obj)
	return !apierrors.IsNotFound(err)
}

// failuresOf returns a text that differs if what a gate refuses does.
func failuresOf(list []gatingv1.FailedChange) string {
	var text strings.Builder
	for _, f := range list {
		fmt.Fprintf(&text, "%s %s %v %v\n", f.Revision, f.Change, f.ResolvedAt != nil, f.Objects)
	}
	return text.String()
}
