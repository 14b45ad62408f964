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

// inert are kinds whose objects do nothing before another refers to them. One that was just created can be
// deleted again, and nothing came of it.
var inert = map[schema.GroupKind]bool{{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true, {Kind: "ServiceAccount"}: true}

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1",
	Resource: "selfsubjectaccessreviews"}

// neverWas is a resource version that no object has: an apply that names it creates, and conflicts with
// whatever is there.
const neverWas = "1"

// undoing bounds how long taking back may take.
const undoing = 30 * time.Second

// trust finds items that need no dry-run, since nothing is written before them: new objects of inert kinds in
// the first stage, which can be taken back if the account may delete them, or else one object that changes,
// which stays as it is when it is refused.
func (r *run) trust(ctx context.Context) (trusted []*item) {
	if r.preview || len(r.req.Ignore) > 0 || len(r.items) == 0 {
		return nil
	}
	named := r.req.Previous.ids()
	for _, i := range r.options.stages(r.items)[0] {
		perhaps := leftAlone(i.desired, r.req.Owner) || steered(i.desired, r.req.Owner, ssaKey, "IfNotPresent")
		if inert[i.ref.groupKind()] && !perhaps && !named[i.ref.Entry().ID] && !r.known(r.req.Owner, i).known &&
			r.mayTakeBack(ctx, i.resource) {
			i.trusted = true
			trusted = append(trusted, i)
		}
	}
	if i := r.foremost(); i != nil && len(trusted) == 0 {
		i.trusted = true
		trusted = append(trusted, i)
	}
	return trusted
}

// mayTakeBack tells whether the account may delete objects of a resource in all namespaces, which it is asked once.
func (c *Cluster) mayTakeBack(ctx context.Context, resource schema.GroupVersionResource) bool {
	c.mu.Lock()
	may, asked := c.deletable[resource]
	c.mu.Unlock()
	if asked {
		return may
	}
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{"verb": "delete", "group": resource.Group,
			"resource": resource.Resource}},
	}}
	answer, err := c.dynamic.Resource(accessReviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false
	}
	may, _, _ = unstructured.NestedBool(answer.Object, "status", "allowed")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletable[resource] = may
	return may
}

// foremost returns the first item that does not stand as declared, if that is because it is declared
// otherwise than it was applied.
func (r *run) foremost() *item {
	if r.req.Resync {
		return nil // others may turn out to come before it
	}
	for _, i := range r.items {
		k, gk := r.known(r.req.Owner, i), i.ref.groupKind()
		switch {
		case k.settled, leftAlone(i.desired, r.req.Owner):
		case !k.known, k.same, gk == definitionKind, gk == namespaceKind,
			steered(i.desired, r.req.Owner, ssaKey, "IfNotPresent"):
			return nil
		default:
			return i
		}
	}
	return nil
}

// writeTrusted writes the trusted items. If one of them is refused, all are taken back, so that the cluster
// is as it was.
func (r *run) writeTrusted(ctx context.Context, trusted []*item) error {
	problems := r.each(ctx, trusted, func(ctx context.Context, i *item) error {
		if r.known(r.req.Owner, i).known {
			return r.change(ctx, i)
		}
		return r.create(ctx, i)
	})
	if !slices.ContainsFunc(trusted, func(i *item) bool { return i.refused }) {
		return failed(problems)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoing)
	defer cancel()
	if left := r.each(ctx, trusted, r.takeBack); failed(left) != nil {
		return failed(append(problems, left...))
	}
	if r.req.SaveInventory != nil {
		if err := r.req.SaveInventory(r.req.Previous); err != nil {
			return failed(append(problems, err))
		}
	}
	return refused(problems)
}

// create creates a trusted item. One that is there already is dry-run instead, as all others are.
func (r *run) create(ctx context.Context, i *item) error {
	r.begin(r.req.Owner, i)
	live, err := r.patchVersion(ctx, i, neverWas)
	switch {
	case apierrors.IsConflict(err):
		return r.doubt(ctx, i)
	case err != nil:
		i.refused = isRefusal(err)
		return r.explain(i, err)
	}
	i.checked, i.done, i.action, i.uid, i.written = true, true, Created, live.GetUID(), live.GetResourceVersion()
	r.commit(r.req.Owner, i, live, Unchanged)
	return nil
}

// change applies a trusted item that is there, if it is as it is seen here. One that calls for more than
// that, or is refused, is dry-run, which tells what is to be done about it.
func (r *run) change(ctx context.Context, i *item) error {
	owner := r.req.Owner
	i.version = r.known(owner, i).version
	before, err := r.live(ctx, i)
	if err != nil || !r.plain(i, before) {
		return r.doubt(ctx, i)
	}
	r.begin(owner, i)
	live, err := r.patchVersion(ctx, i, before.GetResourceVersion())
	if err != nil {
		r.fail(owner, i)
		if isRefusal(err) {
			return r.doubt(ctx, i)
		}
		return r.explain(i, err)
	}
	i.claimedBy(before, owner)
	i.checked, i.done, i.action, i.written = true, true, Unchanged, live.GetResourceVersion()
	if i.written != before.GetResourceVersion() {
		i.action = Configured
		if r.tells() {
			i.diff = r.difference(before, live)
		}
	}
	r.commit(owner, i, live, Unchanged)
	return nil
}

// plain tells whether nothing about an object calls for more than an apply.
func (r *run) plain(i *item, live *unstructured.Unstructured) bool {
	_, takeOver := r.taken(i)(live)
	_, otherVersion := inVersion(live.GetManagedFields(), i.desired.GetAPIVersion())
	return !takeOver && !otherVersion && live.GetDeletionTimestamp() == nil && !leftAlone(live, r.req.Owner) &&
		!steered(live, r.req.Owner, ssaKey, "IfNotPresent")
}

// doubt dry-runs an item after all: nothing was written of it.
func (r *run) doubt(ctx context.Context, i *item) error {
	err := r.checkFirst(ctx, i)
	i.refused = err != nil
	return err
}

// patchVersion applies an item to a version of its object. It conflicts if the object is of another.
func (r *run) patchVersion(ctx context.Context, i *item, version string) (*unstructured.Unstructured, error) {
	i.desired.SetResourceVersion(version)
	defer i.desired.SetResourceVersion("")
	return r.patch(ctx, i, false)
}

// takeBack deletes what was just created, unless somebody replaced it meanwhile.
func (r *run) takeBack(ctx context.Context, i *item) error {
	if !i.done {
		return nil
	}
	r.dropRef(r.req.Owner, i.ref) // its end is no drift
	err := r.client(i.resource, i.ref.Namespace).
		Delete(ctx, i.ref.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(i.uid))})
	if err != nil && !isGone(err) && !apierrors.IsConflict(err) {
		return problem("%s was created, and cannot be taken back", r.name(i)).Because(errors.New(words(i, err)))
	}
	i.done = false
	return nil
}

// isRefusal tells whether the server, or a webhook in between, will not have an object as things are.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := int(status.Status().Code)
	again := code == http.StatusUnauthorized || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !again || webhookFailed(err)
}
