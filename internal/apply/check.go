package apply

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-gitops/sluice/internal/diff"
)

// check finds out, by dry-runs, what is to be done for every item that may not stand as declared. Definitions
// and namespaces come first: what becomes of them decides whether the objects that need them can be checked
// yet.
func (r *run) check(ctx context.Context) error {
	var bases, others, trusted []*item
	for _, i := range r.items {
		gk := i.ref.groupKind()
		switch {
		case gk == definitionKind, gk == namespaceKind:
			bases = append(bases, i)
		case i.trusted:
			trusted = append(trusted, i)
		default:
			others = append(others, i)
		}
	}
	r.prefetch(ctx, slices.DeleteFunc(slices.Clone(r.items),
		func(i *item) bool { return i.ref.groupKind() == definitionKind }))
	problems := r.each(ctx, bases, r.checkFirst)
	for _, i := range others {
		for _, b := range bases {
			switch {
			case b.defines(i.ref.groupKind()) && b.action != Unchanged && b.action != Skipped,
				// and made anew, empty
				b.ref.groupKind() == namespaceKind && b.ref.Name == i.ref.Namespace && b.terminating:
				i.deferred = true
			}
		}
	}
	problems = append(problems, r.each(ctx, others, r.checkFirst)...)
	if refused(problems) != nil { // then all problems are told, those of what would have been trusted as well
		problems = append(problems, r.each(ctx, trusted, r.checkFirst)...)
	}
	return refused(problems)
}

// checkFirst checks an item before anything is written. What builds on objects of the same set that are not
// there yet is left for later.
func (r *run) checkFirst(ctx context.Context, i *item) error {
	if i.deferred {
		return r.estimate(ctx, i)
	}
	err := r.checkItem(ctx, i)
	switch {
	case err == nil:
		return nil
	case namespaceMissing(err, i.ref.Namespace) && r.brings(namespaceKind, i.ref.Namespace):
		if err := r.trial(ctx, i, metav1.NamespaceDefault); err != nil {
			return err
		}
		return r.estimate(ctx, i)
	case r.awaits(i, err), dryRunUnsupported(err):
		return r.estimate(ctx, i)
	default:
		return r.explain(i, err)
	}
}

// unknownVersion stands for that of an object which could not be dry-run.
const unknownVersion = "unknown"

// brings tells whether the set holds an object.
func (r *run) brings(gk schema.GroupKind, name string) bool {
	for _, i := range r.items {
		if i.ref.groupKind() == gk && i.ref.Name == name {
			return true
		}
	}
	return false
}

// awaits tells whether the server missed another object that this very set brings, such as the Role of a RoleBinding.
func (r *run) awaits(i *item, err error) bool {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return false
	}
	said := err.Error()
	if !strings.Contains(said, "found") {
		return false
	}
	for _, o := range r.items {
		if o != i && r.options.rank(o.ref.groupKind()) < r.options.rank(i.ref.groupKind()) &&
			strings.Contains(said, o.ref.Name) && strings.Contains(strings.ToLower(said), strings.ToLower(o.ref.Kind)) {
			return true
		}
	}
	return false
}

// checkLate checks an item right before it is written. A definition of its kind was just established, and may take a
// moment to be served.
func (r *run) checkLate(ctx context.Context, i *item) error {
	backoff := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 14} // 11 s in all
	if !i.deferred {
		backoff.Steps = 1
	}
	err := retry.OnError(backoff, notServed, func() error { return r.checkItem(ctx, i) })
	if dryRunUnsupported(err) {
		i.version = unknownVersion
		return i.found(Configured)
	}
	if err != nil {
		return r.explain(i, err)
	}
	return nil
}

// checkItem dry-runs an item unless it is known to stand as declared. The error is the API server's.
func (r *run) checkItem(ctx context.Context, i *item) error {
	owner := r.req.Owner
	k := r.known(owner, i)
	if leftAlone(i.desired, owner) {
		return i.found(Skipped)
	}
	if k.settled && !r.req.Resync {
		return i.found(k.action)
	}
	if steered(i.desired, owner, ssaKey, "IfNotPresent") {
		if done, err := r.present(ctx, i); done || err != nil {
			return err
		}
	}
	return r.dryRun(ctx, i, false)
}

// dryRun asks the server what applying the item would come to. Again is set if it is asked for the second time.
func (r *run) dryRun(ctx context.Context, i *item, again bool) error {
	owner := r.req.Owner
	k := r.known(owner, i)
	if err := r.leaveIgnored(ctx, i); err != nil {
		return err
	}
	wouldBe, err := r.patch(ctx, i, true)
	if err != nil {
		return r.checkRefused(ctx, i, err, again)
	}
	i.version = wouldBe.GetResourceVersion()
	i.terminating = wouldBe.GetDeletionTimestamp() != nil
	switch {
	case (i.version == "" || i.terminating) && r.expired(i, k):
		return i.found(Unchanged)
	case i.version == "" || i.terminating:
		return r.created(i)
	case leftAlone(wouldBe, owner) || steered(wouldBe, owner, ssaKey, "IfNotPresent"): // the live object says so
		_, err := r.present(ctx, i)
		return err
	}
	if !steered(wouldBe, owner, ssaKey, "Merge") {
		_, i.takeOver = r.managers.takeOver(wouldBe.GetManagedFields(), i.desired.GetAPIVersion(), owner.Group)
	}
	i.from = r.formerOwner(i)
	now := r.managers.digest(wouldBe)
	if !i.takeOver && k.known && k.version == i.version && k.digest == now {
		return r.stands(i, wouldBe)
	}
	likely := i.takeOver || k.known && !k.same // to change, and if it does not, the server leaves it as it is
	told := likely && r.tells()
	if likely && !told {
		return i.found(Configured)
	}
	live, err := r.live(ctx, i)
	if err != nil {
		return err
	}
	i.claimedBy(live, owner)
	switch {
	case !i.takeOver && r.managers.digest(live) == now:
		return r.stands(i, wouldBe)
	case !again && live.GetResourceVersion() != i.version:
		return r.dryRun(ctx, i, true) // it changed in between
	case told || k.same || r.tells():
		r.tell(i, live, wouldBe)
	}
	return i.found(Configured)
}

// expired tells whether an item was applied as it is declared, ran, and went by its time to live.
func (r *run) expired(i *item, k knowledge) bool {
	return !r.req.RerunExpired && HasTTL(i.whole) && (k.same || r.req.SameDeclaration && r.req.Previous.Has(i.ref.Entry()))
}

// stands notes that an item stands as declared.
func (r *run) stands(i *item, live *unstructured.Unstructured) error {
	if !r.preview || r.learn {
		r.commit(r.req.Owner, i, live, Unchanged)
	}
	return i.found(Unchanged)
}

// found notes what a check came to.
func (i *item) found(a Action) error {
	i.checked, i.action = true, a
	return nil
}

// present tells whether the object is there, in which case it is left as it is.
func (r *run) present(ctx context.Context, i *item) (bool, error) {
	live, err := r.client(i.resource, i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, r.leave(i, live)
}

// leave notes that a live object is not to be touched. If it was ours, the watch tells when that may have changed.
func (r *run) leave(i *item, live *unstructured.Unstructured) error {
	if (!r.preview || r.learn) && r.req.Owner.owns(live.GetLabels()) {
		r.commit(r.req.Owner, i, live, Skipped)
	}
	return i.found(Skipped)
}

// checkRefused takes in that the server refused the dry-run.
func (r *run) checkRefused(ctx context.Context, i *item, refusal error, again bool) error {
	versions := ofOldVersion(refusal)
	if !apierrors.IsInvalid(refusal) && !apierrors.IsForbidden(refusal) && !versions {
		return refusal
	}
	live, err := r.client(i.resource, i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
	if err != nil {
		return refusal // it says more
	}
	if leftAlone(live, r.req.Owner) {
		return r.leave(i, live)
	}
	// Managed fields may be what is refused. Setting them right changes who owns fields, and no field.
	fields, right := live.GetManagedFields(), r.taken(i)
	if versions {
		right = func(live *unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, bool) {
			return inVersion(live.GetManagedFields(), i.desired.GetAPIVersion())
		}
		fields, _ = right(live)
	}
	if _, wrong := right(live); wrong && !again && (versions || !steered(i.desired, r.req.Owner, ssaKey, "Merge")) {
		if r.preview {
			return r.previewRefused(ctx, i, live, fields)
		}
		if err := r.setManagedFields(ctx, i, right); err != nil {
			return err
		}
		return r.dryRun(ctx, i, true)
	}
	if !isImmutable(refusal) || !r.req.Force && !steered(i.desired, r.req.Owner, forceKey, "enabled") {
		return refusal
	}
	// What cannot be created anew must not be deleted.
	if err := r.trial(ctx, i, i.ref.Namespace); err != nil {
		return err
	}
	i.version, i.recreate, i.terminating = live.GetResourceVersion(), true, live.GetDeletionTimestamp() != nil
	i.claimedBy(live, r.req.Owner)
	if r.tells() {
		r.tell(i, live, diff.Overlay(live, i.whole))
	}
	return i.found(Configured)
}

// trial has an object validated as if it were created, in a namespace that exists. Only what is wrong with the object
// itself counts: all else may be of the other namespace, or of the object by the same name.
func (r *run) trial(ctx context.Context, i *item, namespace string) error {
	probe := i.desired.DeepCopy()
	probe.SetNamespace(namespace)
	_, err := r.client(i.resource, namespace).Create(ctx, probe, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: r.managers.own, FieldValidation: metav1.FieldValidationStrict,
	})
	if dryRunUnsupported(err) || err == nil || strings.Contains(err.Error(), "already allocated") {
		return nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return r.explain(i, err)
	}
	return nil
}

// prefetchFrom is how many objects of a kind make a list cheaper than asking for each.
const prefetchFrom = 3

// prefetch lists the owner's objects where nothing is known of several of a kind, as after a start.
func (r *run) prefetch(ctx context.Context, items []*item) {
	count := map[schema.GroupVersionResource]int{}
	for _, i := range items {
		if !r.known(r.req.Owner, i).known && !i.deferred && r.req.Previous.Has(i.ref.Entry()) {
			count[i.resource]++
		}
	}
	mine := labels.SelectorFromSet(labels.Set{r.req.Owner.nameLabel(): r.req.Owner.Name,
		r.req.Owner.namespaceLabel(): r.req.Owner.Namespace}).String()
	r.lives = map[Ref]*unstructured.Unstructured{}
	for resource, n := range count {
		if n < prefetchFrom {
			continue
		}
		list, err := r.dynamic.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: mine})
		if err != nil {
			continue // asked for one by one instead
		}
		for n := range list.Items {
			o := &list.Items[n]
			gvk := o.GroupVersionKind()
			r.lives[Ref{gvk.Group, gvk.Version, gvk.Kind, o.GetNamespace(), o.GetName()}] = o
		}
	}
}

// live returns an object as it stands in the cluster, no older than the item's dry-run met it.
func (r *run) live(ctx context.Context, i *item) (*unstructured.Unstructured, error) {
	if o := r.lives[i.ref]; o != nil && o.GetResourceVersion() == i.version {
		return o, nil
	}
	client := r.client(i.resource, i.ref.Namespace)
	// spares the server a read of its store
	cached, err := client.Get(ctx, i.ref.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err == nil && cached.GetResourceVersion() == i.version {
		return cached, nil
	}
	return client.Get(ctx, i.ref.Name, metav1.GetOptions{})
}

// taken returns the managed fields of an item's object with those of overridden managers made ours.
func (r *run) taken(i *item) func(live *unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, bool) {
	return func(live *unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, bool) {
		return r.managers.takeOver(live.GetManagedFields(), i.desired.GetAPIVersion(), r.req.Owner.Group)
	}
}

// setManagedFields writes who owns which fields of an item's object, unless that is right already.
func (r *run) setManagedFields(ctx context.Context, i *item,
	right func(*unstructured.Unstructured) ([]metav1.ManagedFieldsEntry, bool)) error {
	client := r.client(i.resource, i.ref.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := client.Get(ctx, i.ref.Name, metav1.GetOptions{})
		if err != nil {
			return unlessGone(err)
		}
		i.claimedBy(live, r.req.Owner)
		fields, needed := right(live)
		if !needed {
			return nil
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": fields},
			// conflicts if it is older
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, i.ref.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: r.managers.own})
		return unlessGone(err)
	})
}

// unlessGone lets pass what is gone meanwhile: applying creates it.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
