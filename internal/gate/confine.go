package gate

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// selectionTimeout bounds the verification of a selector.
const selectionTimeout = 10 * time.Second

// VerifySelection returns nil if the API server verified that the author of a gate may select objects of other
// namespaces: the policy is enforced, and was when the gate was created. Else the error is a fault.
func (v *AuthorVerifier) VerifySelection(ctx context.Context, g *gatingv1.Gate) error {
	since, err := v.cached(resultKey{forSelections, g.Namespace}, func() (time.Time, error) {
		if err := v.dryRunRequest(ctx, forSelections, g.Namespace); err != nil {
			return time.Time{}, err
		}
		return v.installedSince(ctx, forSelections)
	})
	if err == nil && !g.CreationTimestamp.After(since.Add(enforcementDelay)) {
		return fault.New(meta.AccessDeniedReason, "spec.selector selects objects of namespace '%s' only: the gate was "+
			"created before admission policy '%s' took effect, so the right of its author to select others is unknown",
			g.Namespace, RequestsPolicy).WithHint("Delete the gate and create it again")
	}
	return err
}

// reachesOthers reports whether the selector of a gate names more than the namespace of the gate.
func reachesOthers(g *gatingv1.Gate) bool {
	if g.Spec.Selector == nil || g.Spec.Selector.Namespaces == nil {
		return false
	}
	n := g.Spec.Selector.Namespaces
	return n.Labels != nil || len(n.Names) > 1 || len(n.Names) == 1 && n.Names[0] != g.Namespace
}

// confines reports whether a gate selects in its own namespace only, with the reason if the API server did not verify
// its author. If this cannot be found out now, the answer is that of before, and first that it is not confined: what it
// should hold is held.
func (x *Index) confines(ctx context.Context, g *gatingv1.Gate, before *selector) (bool, error) {
	switch {
	case !reachesOthers(g) || g.Namespace == x.PlatformNamespace:
		return false, nil
	case x.NoCrossNamespaceRefs:
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, selectionTimeout)
	defer cancel()
	err := x.VerifySelection(ctx, g)
	if isTransient(err) {
		return before != nil && before.uid == g.UID && before.confined, err
	}
	return err != nil, err
}

// isTransient reports whether the API server gave no answer. A rejection is an answer, as a tenant could cause it, for
// example with a quota of its namespace.
func isTransient(err error) bool {
	var answer apierrors.APIStatus
	f := fault.As(err)
	if f == nil || f.Err == nil || f.Reason != meta.AccessDeniedReason {
		return false
	}
	if !errors.As(f.Err, &answer) {
		return !errors.Is(f.Err, errAccepted)
	}
	return apierrors.IsTimeout(f.Err) || apierrors.IsServerTimeout(f.Err) || apierrors.IsTooManyRequests(f.Err) ||
		apierrors.IsServiceUnavailable(f.Err) || apierrors.IsInternalError(f.Err) || apierrors.IsUnauthorized(f.Err)
}

// CheckSelection verifies the author of a gate again, and updates the index. The error says why the gate selects less
// than its selector names.
func (x *Index) CheckSelection(ctx context.Context, g *gatingv1.Gate) error {
	key := types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
	x.mu.RLock()
	before := x.selectors[key]
	x.mu.RUnlock()
	confined, err := x.confines(ctx, g, before)
	x.mu.Lock()
	current := x.selectors[key]
	if current == nil || current.uid != g.UID || current.confined == confined || !reachesOthers(g) {
		x.mu.Unlock()
		return err
	}
	changed := *current
	changed.confined = confined
	x.selectors[key] = &changed
	x.mu.Unlock()
	x.Edges.NotifyDependents(reconcile.Ref{GroupKind: GroupKind, NamespacedName: key})
	x.EnqueueSelected(func(ref reconcile.Ref, obj reconcile.Gated) bool { return changed.matches(x, ref, obj) })
	if len(g.Spec.Waves) > 0 {
		x.observeAll()
	}
	return err
}
