package apply

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/diff"
)

// Diff tells what Apply would do to each object, and what a Prune of those that Previous names and Objects do
// not would, by dry-runs only: nothing is written, and what is known of the owner's objects stays as it is.
// Of objects that are to be created or configured it tells all diffs. What cannot be dry-run before other
// objects of the set are there, such as their namespace or definition, is compared with what is declared.
// Errors are those of Apply; with one, Diff returns the changes of the objects that were not refused. SaveInventory
// and Diffs of the request are of no meaning.
func (c *Cluster) Diff(ctx context.Context, req Request) ([]Change, error) {
	return c.preview(ctx, req, false)
}

// preview does the dry-runs of Diff, and of Look, which learns from them.
func (c *Cluster) preview(ctx context.Context, req Request, learn bool) ([]Change, error) {
	items, err := c.plan(req)
	if err != nil {
		return nil, err
	}
	var desired Inventory
	for _, i := range items {
		desired = append(desired, i.ref.Entry())
	}
	r := &run{Cluster: c, req: req, items: items, preview: true, learn: learn}
	problems := []error{r.check(ctx)}
	for _, i := range items {
		i.done = i.checked
		if learn && i.checked && (i.action == Created || i.action == Configured) {
			c.follow(req.Owner, i)
		}
		if i.recreate {
			i.action = Created
		}
	}
	stale, unread := c.options.staleItems(req.Previous.Without(desired))
	problems = append(append(problems, unread...), r.each(ctx, stale, func(ctx context.Context, i *item) error {
		_, err := r.stale(ctx, i)
		return err
	})...)
	return changes(append(items, stale...)), join(problems, "%d problems")
}

// difference words what changes of an object, with what is secret masked.
func (r *run) difference(before, after *unstructured.Unstructured) string {
	return diff.Text(before, after, r.req.Secrets...)
}

// tells reserves a place among the changes that are told with their diff.
func (r *run) tells() bool { return r.preview || r.told.Add(1) <= int64(r.req.MaxDiffs) }

// tell notes what an item is before it changes, and in a preview, what would change.
func (r *run) tell(i *item, live, wouldBe *unstructured.Unstructured) {
	if !r.preview {
		i.live = live
		return
	}
	if i.takeOver {
		wouldBe = wouldBe.DeepCopy()
		r.managers.dropForsaken(wouldBe, r.req.Owner.Group)
	}
	i.diff = r.difference(live, wouldBe)
}

// estimate tells in a preview what an item that the server cannot dry-run yet will come to.
func (r *run) estimate(ctx context.Context, i *item) error {
	if !r.preview {
		return nil
	}
	if i.deferred && r.checkItem(ctx, i) == nil { // the definition that it waits for stands already, and allows it
		return nil
	}
	live, err := r.client(i.resource, i.ref.Namespace).Get(ctx, i.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return r.created(i)
	case err != nil:
		return r.explain(i, err)
	}
	i.claimedBy(live, r.req.Owner)
	if i.diff = r.difference(live, diff.Overlay(live, i.desired)); i.diff == "" {
		return i.found(Unchanged)
	}
	return i.found(Configured)
}

// previewRefused tells what an item comes to whose dry-run is refused for the managed fields of its object,
// which are set right before it is applied. What kubectl left in it is taken over then.
func (r *run) previewRefused(ctx context.Context, i *item, live *unstructured.Unstructured,
	fields []metav1.ManagedFieldsEntry) error {
	if err := r.trial(ctx, i, i.ref.Namespace); err != nil {
		return err
	}
	i.claimedBy(live, r.req.Owner)
	rest := live.DeepCopy()
	rest.SetManagedFields(fields)
	r.managers.dropForsaken(rest, r.req.Owner.Group)
	i.diff = r.difference(live, diff.Overlay(rest, i.desired))
	return i.found(Configured)
}

// created notes that an item is not there.
func (r *run) created(i *item) error {
	if r.preview {
		i.diff = r.difference(nil, i.desired)
	}
	return i.found(Created)
}

// claimedBy notes that a live object belongs to another owner.
func (i *item) claimedBy(live *unstructured.Unstructured, owner Owner) {
	i.from = Owner{}
	if o := ownerOf(live.GetLabels(), owner.Group); o != owner {
		i.from = o
	}
}
