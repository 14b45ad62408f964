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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// inert are kinds whose objects do nothing before another refers to them. One that was just created can be deleted again, and
// nothing came of it.
var inert = map[schema.GroupKind]bool{{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true, {Kind: "ServiceAccount"}: true}

// neverWas is a resource version that no object has: an apply that names it creates, and conflicts with whatever is there.
const neverWas = "1"

// undoing bounds how long taking back may take.
const undoing = 30 * time.Second

// trust finds items that need no dry-run, since nothing is written before them, and they can be taken back: new objects of
// inert kinds in the first stage.
func (r *run) trust() (trusted []*item) {
	if r.preview || len(r.req.Ignore) > 0 || len(r.items) == 0 {
		return nil
	}
	named := r.req.Previous.ids()
	for _, i := range r.options.stages(r.items)[0] {
		steered := leftAlone(i.desired, r.req.Owner) || annotated(i.desired, r.req.Owner, ssaAnnotation, "IfNotPresent")
		if inert[i.ref.groupKind()] && !steered && !named[i.ref.Entry().ID] && !r.known(r.req.Owner, i).known {
			i.trusted = true
			trusted = append(trusted, i)
		}
	}
	return trusted
}

// create creates the trusted items. If one of them is refused, all are taken back, so that the cluster is as it was.
func (r *run) create(ctx context.Context, trusted []*item) error {
	problems := r.each(ctx, trusted, r.createNew)
	if !slices.ContainsFunc(trusted, func(i *item) bool { return i.refused }) {
		return failed(problems)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoing)
	defer cancel()
	if left := r.each(ctx, trusted, r.takeBack); failed(left) != nil {
		return failed(append(problems, left...))
	}
	if r.req.Intend != nil {
		if err := r.req.Intend(r.req.Previous); err != nil {
			return failed(append(problems, err))
		}
	}
	return refused(problems)
}

// createNew creates a trusted item. One that is there already is dry-run instead, as all others are.
func (r *run) createNew(ctx context.Context, i *item) error {
	r.begin(r.req.Owner, i)
	i.desired.SetResourceVersion(neverWas)
	data, err := i.desired.MarshalJSON()
	i.desired.SetResourceVersion("")
	if err != nil {
		return err
	}
	var live *unstructured.Unstructured
	err = retry.OnError(patience, func(err error) bool { return transient(err) && !apierrors.IsConflict(err) }, func() error {
		live, err = r.client(i.resource, i.ref.Namespace).Patch(ctx, i.ref.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: r.managers.own})
		return err
	})
	switch {
	case apierrors.IsConflict(err):
		err := r.checkFirst(ctx, i)
		i.refused = err != nil
		return err
	case err != nil:
		i.refused = isRefusal(err)
		return r.explain(i, err)
	}
	i.checked, i.done, i.action, i.uid, i.written = true, true, Created, live.GetUID(), live.GetResourceVersion()
	r.commit(r.req.Owner, i, live, Unchanged)
	return nil
}

// takeBack deletes what was just created, unless somebody replaced it meanwhile.
func (r *run) takeBack(ctx context.Context, i *item) error {
	if !i.done {
		return nil
	}
	r.dropRef(r.req.Owner, i.ref) // its end is no drift
	err := r.client(i.resource, i.ref.Namespace).Delete(ctx, i.ref.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(i.uid))})
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
