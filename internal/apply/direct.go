package apply

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// inert are kinds whose objects have no effect before other objects refer to them. So one that was just created can be
// deleted again without consequences.
var inert = map[schema.GroupKind]bool{{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true, {Kind: "ServiceAccount"}: true}

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1",
	Resource: "selfsubjectaccessreviews"}

// nonexistentVersion is a resource version that no object has. An apply with this version creates the object, or
// conflicts if it exists.
const nonexistentVersion = "1"

// rollbackTimeout bounds the deletion of objects that a direct write created.
const rollbackTimeout = 30 * time.Second

// selectDirect selects objects that are written without a dry-run, before all others. These are new objects of inert
// kinds, which can be deleted again if one of them is refused and the account may delete them. If there are none, it is
// the first object that changes: if that is refused, nothing has changed.
func (r *run) selectDirect(ctx context.Context) (direct []*step) {
	if r.preview || len(r.req.Ignore) > 0 || len(r.steps) == 0 {
		return nil
	}
	previous := r.req.Previous.ids()
	for _, s := range stages(r.options, r.steps)[0] {
		mayExist := IsExcluded(s.manifest, r.req.Owner) || isCreateOnly(s.manifest, r.req.Owner) ||
			previous[s.ref.Entry().ID] || r.lookup(r.req.Owner, s.object).tracked
		if inert[s.ref.groupKind()] && !mayExist && r.mayDelete(ctx, s.resource) {
			s.direct = true
			direct = append(direct, s)
		}
	}
	if s := r.firstChanged(); s != nil && len(direct) == 0 {
		s.direct = true
		direct = append(direct, s)
	}
	return direct
}

// mayDelete reports whether the account may delete objects of a resource in all namespaces. The cluster is asked once
// for each resource.
func (c *Cluster) mayDelete(ctx context.Context, resource schema.GroupVersionResource) bool {
	c.mu.Lock()
	allowed, known := c.deletable[resource]
	c.mu.Unlock()
	if known {
		return allowed
	}
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{"verb": "delete", "group": resource.Group,
			"resource": resource.Resource}},
	}}
	response, err := c.dynamic.Resource(accessReviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false
	}
	allowed, _, _ = unstructured.NestedBool(response.Object, "status", "allowed")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletable[resource] = allowed
	return allowed
}

// firstChanged returns the first object that is not up to date, if its declaration changed and it is tracked; nil
// otherwise.
func (r *run) firstChanged() *step {
	if r.req.Resync {
		return nil // an object before it may turn out to have changed
	}
	for _, s := range r.steps {
		known, gk := r.lookup(r.req.Owner, s.object), s.ref.groupKind()
		switch {
		case known.upToDate, IsExcluded(s.manifest, r.req.Owner):
		case !known.tracked, known.sameDeclaration, gk == definitionKind, gk == namespaceKind,
			isCreateOnly(s.manifest, r.req.Owner):
			return nil
		default:
			return s
		}
	}
	return nil
}

// writeDirect writes objects without a dry-run. If one is refused, those that were created are deleted again, so that
// the cluster is as it was.
func (r *run) writeDirect(ctx context.Context, direct []*step) error {
	problems := each(ctx, r.options.Concurrency, direct, func(ctx context.Context, s *step) error {
		if r.lookup(r.req.Owner, s.object).tracked {
			return r.changeDirect(ctx, s)
		}
		return r.createDirect(ctx, s)
	})
	if !slices.ContainsFunc(direct, func(s *step) bool { return s.refused }) {
		return failed(problems)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if left := each(ctx, r.options.Concurrency, direct, r.rollBack); failed(left) != nil {
		return failed(append(problems, left...))
	}
	if r.req.SaveInventory != nil {
		if err := r.req.SaveInventory(r.req.Previous); err != nil {
			return failed(append(problems, err))
		}
	}
	return refused(problems)
}

// createDirect creates an object. If it exists, it is dry-run instead.
func (r *run) createDirect(ctx context.Context, s *step) error {
	r.beginWrite(r.req.Owner, s.object)
	live, err := r.patch(ctx, s.object, s.manifest, patchOptions{version: nonexistentVersion})
	switch {
	case apierrors.IsConflict(err):
		return r.checkInstead(ctx, s)
	case err != nil:
		s.refused = isRefusal(err)
		return r.explain(s.object, err)
	}
	s.outcome = &outcome{action: Created, version: live.GetResourceVersion(), uid: live.GetUID()}
	r.commit(r.req.Owner, s.object, live, Unchanged)
	return nil
}

// changeDirect applies an object to the version that it has read. An object that is refused, or needs more than an
// apply, is dry-run instead, which finds out what to do.
func (r *run) changeDirect(ctx context.Context, s *step) error {
	owner := r.req.Owner
	before, err := r.live(ctx, s.object, r.lookup(owner, s.object).version)
	if err != nil || !r.needsOnlyApply(s.object, before) {
		return r.checkInstead(ctx, s)
	}
	r.beginWrite(owner, s.object)
	live, err := r.patch(ctx, s.object, s.manifest, patchOptions{version: before.GetResourceVersion()})
	if err != nil {
		r.failWrite(owner, s.object)
		if isRefusal(err) {
			return r.checkInstead(ctx, s)
		}
		return r.explain(s.object, err)
	}
	out := &outcome{action: Unchanged, version: live.GetResourceVersion(), previousOwner: otherOwner(before, owner)}
	if out.version != before.GetResourceVersion() {
		out.action = Configured
		if r.reportsDiff() {
			out.diff = r.difference(before, live)
		}
	}
	s.outcome = out
	r.commit(owner, s.object, live, Unchanged)
	return nil
}

// needsOnlyApply reports whether a live object can be applied without normalizing, re-creating or skipping it.
func (r *run) needsOnlyApply(o *object, live *unstructured.Unstructured) bool {
	_, normalize := r.normalized(live, o.manifest.GetAPIVersion(), normalization{convert: true, takeOver: true})
	return !normalize && live.GetDeletionTimestamp() == nil && !IsExcluded(live, r.req.Owner) &&
		!isCreateOnly(live, r.req.Owner)
}

// checkInstead dry-runs an object that was not written directly.
func (r *run) checkInstead(ctx context.Context, s *step) error {
	err := r.checkStep(ctx, s)
	s.refused = err != nil
	return err
}

// rollBack deletes an object that a direct write created, unless it has been replaced since.
func (r *run) rollBack(ctx context.Context, s *step) error {
	if s.outcome == nil {
		return nil
	}
	r.untrack(r.req.Owner, s.ref) // the deletion is not drift
	err := r.client(s.resource, s.ref.Namespace).
		Delete(ctx, s.ref.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.outcome.uid))})
	if err != nil && !isGone(err) {
		return problem("%s was created, and could not be deleted again", r.name(s.object)).
			Because(errors.New(serverMessage(s.object, err)))
	}
	s.outcome = nil
	return nil
}

// isRefusal reports whether the server or a webhook rejected an object, so that a retry would be rejected, too.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := int(status.Status().Code)
	retriable := code == http.StatusUnauthorized || code == http.StatusRequestTimeout ||
		code == http.StatusTooManyRequests
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !retriable ||
		webhookFailed(err) || isMalformed(err)
}
