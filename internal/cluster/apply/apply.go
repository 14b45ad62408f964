package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Request describes the desired state of an owner's objects.
type Request struct {
	Owner    Owner
	Objects  []*unstructured.Unstructured
	Previous Inventory // the objects that the owner applied before
	Force    bool      // re-create objects when an immutable field changes
	Resync   bool      // compare all objects, also those without drift
	Ignore   []Ignored // fields that other managers may set
	// SameDeclaration is set if the objects are declared as they were when they were applied last, maybe by another
	// process.
	SameDeclaration bool
	// Recorded is what [Cluster.Record] returned after the last complete apply, maybe in another process.
	Recorded     string
	RerunExpired bool // create Jobs again that were deleted by their time to live
	// Native applies objects of built-in kinds in the form of their Go types, as Flux does for Kustomizations. Fields
	// that a type does not have are left out; see [Change.Unknown]. With StrictFields, such an object is refused.
	Native, StrictFields bool
	// KeepOthers keeps fields that the objects do not declare and kubectl set, as Helm and Flux do for releases.
	// Otherwise they are removed.
	KeepOthers bool
	// MaxDiffs is the maximum number of changed objects whose diff is reported although it needs an extra request.
	// Corrections of drift are always reported with a diff.
	MaxDiffs int

	// Inspect makes a preview return the objects before and after each change. Objects that the account may read, but
	// not dry-run, are compared with their declaration; those that it may not read are Hidden. Neither is an error.
	Inspect bool

	// Veil hides what comes from secrets in diffs. May be nil.
	Veil *redact.Veil

	// Origin returns the file that an object comes from, for error messages. May be nil.
	Origin func(*unstructured.Unstructured) string
	// Locate returns the file and the line of a field of an object, or the file alone. May be nil.
	Locate func(o *unstructured.Unstructured, field string) string

	// SaveInventory is called with Previous and all desired objects before the first object is created that Previous
	// does not contain. So a process that is killed leaves no object that is in no inventory. It is called with
	// Previous alone when an object was refused, and those that were created before were deleted again. May be nil.
	SaveInventory func(Inventory) error
}

// Result lists what was done for a request.
type Result struct {
	Changes   []Change  // in the order of applying
	Inventory Inventory // of all desired objects
	// from the API server, such as for a deprecated API version, and for objects with several owners
	Warnings []string
}

// Apply makes the cluster match the request. It checks the objects by dry-runs before it writes: if an object is
// refused, the cluster is not changed, and the error names all refused objects. Objects that are up to date cost no
// request. The result is not nil even with an error; it lists what was done before the error. Errors are faults that
// name the objects. See [IsWaiting] for objects that are not ready to be applied yet.
func (c *Cluster) Apply(ctx context.Context, req Request) (*Result, error) {
	ctx, warned := withWarnings(ctx)
	result := &Result{}
	r, err := c.newRun(req)
	if err != nil {
		return result, err
	}
	result.Inventory = r.inventory()
	c.resumeWatches(req.Owner)
	err = r.do(ctx, result.Inventory)
	result.Changes = r.changes()
	result.Warnings = append(warned.list(), ownershipWarnings(req.Owner, result.Changes)...)
	if err == nil {
		c.retain(req.Owner, r.steps)
	}
	return result, err
}

// run is a request in progress.
type run struct {
	*Cluster
	req   Request
	steps []*step
	waits waitBudget
	saved Inventory // by SaveInventory; nil before it was called

	listed  map[Ref]*unstructured.Unstructured // live objects as they were before the writes
	preview bool                               // nothing is written, and the tracked objects stay as they are
	track   bool                               // in a preview: objects without changes become tracked
	diffs   atomic.Int64                       // number of changes that are reported with their diff
}

// step is the progress of one object: declared, then checked, then written.
type step struct {
	*object
	deferred  bool     // cannot be checked before other objects of the set are written
	direct    bool     // created without a dry-run, before all other objects
	inNew     bool     // in a namespace of the set that does not exist yet
	inCreated bool     // in a namespace that this call created
	refused   bool     // the API server refused to create the object directly
	attempted bool     // a write was sent
	plan      *plan    // what the check decided; nil before it
	outcome   *outcome // what was done; nil before it
}

// plan is what a check decided to do about an object.
type plan struct {
	action  Action
	desired *unstructured.Unstructured // what is applied: the manifest without ignored fields
	version string                     // of the live object; empty if there is none; unknownVersion without a dry-run

	terminating   bool // the live object is being deleted
	recreate      bool // an immutable field changes, and the object may be re-created
	takeOver      bool // fields of overridden managers become ours first
	convertFields bool // the managed fields are converted to the version of the manifest first

	live          *unstructured.Unstructured // before the write; nil unless the diff is reported
	diff          string                     // of a preview
	previousOwner Owner                      // another owner of the live object; zero if there is none
	before, after *unstructured.Unstructured // of a preview that inspects
}

// outcome is what was done about an object.
type outcome struct {
	action        Action
	version       string    // resource version of the live object after a write; empty if nothing was written
	uid           types.UID // of an object that was created without a plan
	diff          string
	previousOwner Owner
	before, after *unstructured.Unstructured // of a preview that inspects
}

func (c *Cluster) newRun(req Request) (*run, error) {
	objects, err := c.resolve(req)
	if err != nil {
		return nil, err
	}
	r := &run{Cluster: c, req: req, listed: map[Ref]*unstructured.Unstructured{}}
	for _, o := range objects {
		r.steps = append(r.steps, &step{object: o, deferred: o.undefined})
	}
	return r, nil
}

func (r *run) inventory() Inventory {
	var inventory Inventory
	for _, s := range r.steps {
		inventory = append(inventory, s.ref.Entry())
	}
	return inventory
}

func (r *run) do(ctx context.Context, desired Inventory) error {
	if err := r.makeNative(); err != nil {
		return err
	}
	r.recognize(ctx)
	direct := r.selectDirect(ctx)
	for _, s := range direct {
		s.direct = true
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	err := r.createNamespaces(ctx)
	if err == nil {
		err = r.save(r.req.Previous.With(desired))
	}
	if err == nil {
		err = r.writeDirect(ctx, direct)
	}
	if err == nil {
		err = r.writeStages(ctx)
	}
	if err == nil {
		return nil
	}
	if unsaved := r.saveExisting(ctx, err); unsaved != nil {
		return errors.Join(err, unsaved)
	}
	return err
}

func (r *run) writeStages(ctx context.Context) error {
	for _, stage := range stages(r.options, r.steps) {
		if err := failed(each(ctx, r.options.Concurrency, stage, r.write)); err != nil {
			return err
		}
		if err := r.waitEstablished(ctx, stage); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for the items concurrently, and returns all errors. It stops early when the context ends, or when the
// cluster cannot be reached.
func each[T any](ctx context.Context, concurrency int, items []T, do func(context.Context, T) error) []error {
	g := guard.NewGroup("applying objects")
	g.SetLimit(concurrency)
	problems := make([]error, len(items))
	var unreachable atomic.Bool
	for n, item := range items {
		if ctx.Err() != nil || unreachable.Load() {
			break
		}
		g.Go(func() error {
			problems[n] = guard.DoContext(ctx, "applying an object", func() error { return do(ctx, item) })
			if errors.As(problems[n], &unreachableError{}) {
				unreachable.Store(true)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return nil
	if ctx.Err() == nil {
		return problems
	}
	problems = slices.DeleteFunc(problems, func(err error) bool {
		return err == nil || strings.Contains(err.Error(), ctx.Err().Error())
	})
	return append(problems, problem("timeout while applying").Because(ctx.Err()).
		WithHint("If the cluster is slow, raise spec.timeout, or --timeout of the command"))
}
