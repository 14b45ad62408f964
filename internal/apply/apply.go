package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// Request says what the cluster is to hold.
type Request struct {
	Owner    Owner
	Objects  []*unstructured.Unstructured
	Previous Inventory // what the owner applied before
	Force    bool      // re-create objects when an immutable field changes
	Resync   bool      // compare everything, also what did not move
	Ignore   []Ignored // fields that are left to others
	// the objects are declared as they were when they were applied last, maybe by a process before this one
	SameDeclaration bool
	RerunExpired    bool // create Jobs again that went by their time to live, although they are declared as they were
	// how many changes of what is declared are told with their diff, at the cost of a request each; those of
	// what moved always are
	MaxDiffs int

	// Secrets are values that no diff may show, wherever they stand in an object.
	Secrets []string

	// Origin tells which file an object comes from, for errors to name. May be nil.
	Origin func(*unstructured.Unstructured) string

	// SaveInventory is called with Previous and all desired objects before the first that Previous does not name is
	// created, so that a process killed at any instruction leaves no object that nobody knows of. It is
	// called with Previous alone when those that were created were taken back. May be nil.
	SaveInventory func(Inventory) error
}

// Result is what became of the request.
type Result struct {
	Changes   []Change  // in the order of applying
	Inventory Inventory // of all desired objects
	Warnings  []string  // of the API server, such as of an API version that will go, and of objects that others claim
}

// Apply makes the cluster hold the objects. Everything that can be is dry-run before anything is written: a refused
// object leaves the cluster as it was, and all refusals are told at once. Objects that stand as declared cost
// no request. The result is not nil even with an error; it lists what was done until then. Errors are faults
// that name the objects.
func (c *Cluster) Apply(ctx context.Context, req Request) (*Result, error) {
	ctx, warned := withWarnings(ctx)
	result := &Result{}
	items, err := c.plan(req)
	if err != nil {
		return result, err
	}
	for _, i := range items {
		result.Inventory = append(result.Inventory, i.ref.Entry())
	}
	c.retry(req.Owner)
	run := &run{Cluster: c, req: req, items: items}
	err = run.do(ctx, result.Inventory)
	result.Changes = changes(items)
	result.Warnings = append(warned.list(), claims(req.Owner, result.Changes)...)
	if err == nil {
		c.retain(req.Owner, items)
	}
	return result, err
}

// run is one request under way.
type run struct {
	*Cluster
	req   Request
	items []*item

	lives   map[Ref]*unstructured.Unstructured // listed before the dry-run, where that saves requests
	preview bool                               // nothing is written, neither to the cluster nor to what is known of it
	learn   bool                               // what a preview finds as declared is known to be so
	told    atomic.Int64                       // how many changes are told with their diff
}

func (r *run) do(ctx context.Context, desired Inventory) error {
	trusted := r.trust(ctx)
	if err := r.check(ctx); err != nil {
		return err
	}
	if r.req.SaveInventory != nil && len(desired.Without(r.req.Previous)) > 0 {
		if err := r.req.SaveInventory(r.req.Previous.With(desired)); err != nil {
			return err
		}
	}
	if err := r.writeTrusted(ctx, trusted); err != nil {
		return err
	}
	for _, stage := range r.options.stages(r.items) {
		if err := failed(r.each(ctx, stage, r.write)); err != nil {
			return err
		}
		if err := r.established(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for the items, some at once, and returns all problems. It ends early with the context, and
// when the cluster cannot be reached.
func (r *run) each(ctx context.Context, items []*item, do func(context.Context, *item) error) []error {
	var g errgroup.Group
	g.SetLimit(r.options.Concurrency)
	problems := make([]error, len(items))
	var lost atomic.Bool // the line to the cluster
	for n, i := range items {
		if ctx.Err() != nil || lost.Load() {
			break
		}
		g.Go(func() error {
			problems[n] = do(ctx, i)
			if errors.As(problems[n], &errLineLost{}) {
				lost.Store(true)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return nothing
	if ctx.Err() == nil {
		return problems
	}
	problems = slices.DeleteFunc(problems, func(err error) bool {
		return err == nil ||
			strings.Contains(err.Error(), ctx.Err().Error())
	})
	return append(problems, problem("applying did not end in time").Because(ctx.Err()).
		WithHint("Raise spec.timeout if the cluster is only slow"))
}

// write does for an item what its check found to be due.
func (r *run) write(ctx context.Context, i *item) error {
	if i.done {
		return nil
	}
	if !i.checked {
		if err := r.checkLate(ctx, i); err != nil {
			return err
		}
	}
	if i.action == Created || i.action == Configured {
		before, drifted := r.contested(ctx, i)
		r.begin(r.req.Owner, i)
		live, err := r.put(ctx, i)
		if err != nil {
			r.fail(r.req.Owner, i)
			return err
		}
		switch {
		case i.version == "" || i.recreate || i.terminating:
			i.action = Created
		case i.version == live.GetResourceVersion():
			i.action = Unchanged
		}
		i.written = live.GetResourceVersion()
		if i.live != nil {
			i.diff, i.live = r.difference(i.live, live), nil
		}
		r.commit(r.req.Owner, i, live, Unchanged)
		if drifted && i.action != Unchanged {
			r.corrected(r.req.Owner, i, r.managers.lost(before, live.GetManagedFields()))
		}
	}
	i.done = true
	return nil
}

// put writes an item, after making room for it.
func (r *run) put(ctx context.Context, i *item) (*unstructured.Unstructured, error) {
	if i.recreate && !i.terminating {
		policy := metav1.DeletePropagationBackground
		err := r.client(i.resource, i.ref.Namespace).
			Delete(ctx, i.ref.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil && !isGone(err) {
			return nil, r.explain(i, err)
		}
	}
	if i.recreate || i.terminating {
		i.desired = i.whole
		if err := r.gone(ctx, i.resource, i.ref); err != nil {
			return nil, err
		}
	}
	if i.takeOver && !i.recreate {
		if err := r.setManagedFields(ctx, i, r.taken(i)); err != nil {
			return nil, r.explain(i, err)
		}
	}
	live, err := r.patch(ctx, i, false)
	if err == nil && i.takeOver {
		// What had no managed fields has some from here on: those of whoever set it before.
		if _, left := r.taken(i)(live); left {
			if err = r.setManagedFields(ctx, i, r.taken(i)); err == nil {
				live, err = r.patch(ctx, i, false)
			}
		}
	}
	if err != nil {
		return nil, r.explain(i, err)
	}
	return live, nil
}

// patience with a server that is busy or has just lost its leader: 2 s in all.
var patience = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 5}

// patch sends a server-side apply. It returns nil with an error.
func (r *run) patch(ctx context.Context, i *item, dry bool) (*unstructured.Unstructured, error) {
	data, err := i.desired.MarshalJSON()
	if err != nil {
		return nil, err
	}
	force := true // what is declared holds, whoever else set it
	options := metav1.PatchOptions{FieldManager: r.managers.own, Force: &force}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	} else if i.checked {
		options.FieldValidation = metav1.FieldValidationIgnore // the dry-run told what there is to say
	}
	var live *unstructured.Unstructured
	again := func(err error) bool {
		return transient(err) && (i.desired.GetResourceVersion() == "" || !apierrors.IsConflict(err))
	}
	err = retry.OnError(patience, again, func() error {
		live, err = r.client(i.resource, i.ref.Namespace).Patch(ctx, i.ref.Name, types.ApplyPatchType, data, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	return live, nil
}
