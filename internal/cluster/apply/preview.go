package apply

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/text/diff"
)

// Diff returns what Apply would do to each object, and what Prune would do to the objects of Previous that are not
// declared. It writes nothing, and does not change which objects are tracked. Changes of objects that would be created
// or configured have a diff. An object that cannot be dry-run before others of the set exist, such as its namespace, is
// compared with its declaration. Errors are those of Apply; with an error, Diff returns the changes of the
// other objects. SaveInventory and MaxDiffs of the request are ignored.
func (c *Cluster) Diff(ctx context.Context, req Request) ([]Change, error) {
	return c.runPreview(ctx, req, false)
}

// DetectDrift is Diff for an owner whose drift is reported, not corrected. The drift that it returns counts
// as reported: Drifted and OnDrift only report changes after it. The objects must be declared as they were
// applied, by this process or an earlier one.
func (c *Cluster) DetectDrift(ctx context.Context, req Request) ([]Change, error) {
	c.markReported(req.Owner) // before the dry-runs, so that changes during them are reported
	return c.runPreview(ctx, req, true)
}

func (c *Cluster) runPreview(ctx context.Context, req Request, track bool) ([]Change, error) {
	r, err := c.newRun(req)
	if err != nil {
		return nil, err
	}
	r.preview, r.track = true, track
	if err := r.makeNative(); err != nil {
		return nil, err
	}
	problems := []error{r.check(ctx)}
	for _, s := range r.steps {
		if s.plan == nil {
			continue
		}
		if track && (s.plan.action == Created || s.plan.action == Configured) {
			c.trackDrifted(req.Owner, s.object)
		}
		s.outcome = &outcome{action: s.plan.action, diff: s.plan.diff, previousOwner: s.plan.previousOwner,
			before: s.plan.before, after: s.plan.after}
		if s.plan.recreate {
			s.outcome.action = Created
		}
	}
	stale, unread := c.options.staleObjects(req.Previous.Without(r.inventory()))
	problems = append(append(problems, unread...), each(ctx, c.options.Concurrency, stale,
		func(ctx context.Context, o *staleObject) error {
			_, err := c.checkStale(ctx, req.Owner, o)
			if req.Inspect {
				return c.inspectStale(ctx, o, err)
			}
			return err
		})...)
	return append(r.changes(), staleChanges(stale)...), join(problems, "%d problems")
}

// difference returns the diff of two objects, without what comes from secrets.
func (r *run) difference(before, after *unstructured.Unstructured) string {
	return diff.Text(r.req.Veil.Objects(before, after, r.req.SameDeclaration))
}

// reportsDiff reports whether the diff of one more object may be reported, and counts it.
func (r *run) reportsDiff() bool { return r.preview || r.diffs.Add(1) <= int64(r.req.MaxDiffs) }

// planDiff adds what is needed to report the diff of an object: in a preview the diff itself, else the live object.
func (r *run) planDiff(o *object, p *plan, live, result *unstructured.Unstructured) {
	if !r.preview {
		p.live = live
		return
	}
	if p.takeOver {
		result = result.DeepCopy()
		r.dropUnowned(o, result)
	}
	p.diff = r.difference(live, result)
	r.inspect(p, live, result)
}

// inspect records the objects before and after a change, if the request asks for them.
func (r *run) inspect(p *plan, before, after *unstructured.Unstructured) {
	if r.preview && r.req.Inspect {
		p.before, p.after = before, after
	}
}

// inspectStale reads an object that would be deleted. An object that the account has no right to see becomes Hidden.
func (c *Cluster) inspectStale(ctx context.Context, o *staleObject, err error) error {
	if err == nil && o.action == Deleted {
		o.before, err = c.client(o.resource, o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			o.action, err = "", nil // deleted meanwhile
		}
	}
	if lacksRight(err) {
		o.action, err = Hidden, nil
	}
	return err
}

// estimate returns the plan of an object that cannot be dry-run, or not yet; nil unless it is for a preview.
func (r *run) estimate(ctx context.Context, s *step) (*plan, error) {
	if !r.preview {
		return nil, nil
	}
	if s.deferred {
		// The definition or namespace may exist, and allow the object as it is.
		if p, err := r.checkObject(ctx, s.object); err == nil && p != nil {
			return p, nil
		}
	}
	live, err := r.client(s.resource, s.ref.Namespace).Get(ctx, s.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return r.planCreate(&plan{desired: s.manifest}), nil
	case r.req.Inspect && lacksRight(err):
		return &plan{action: Hidden}, nil
	case err != nil:
		return nil, r.explain(s.object, err)
	}
	p := &plan{action: Configured, previousOwner: otherOwner(live, r.req.Owner)}
	result := diff.Overlay(live, s.manifest)
	if p.diff = r.difference(live, result); p.diff == "" {
		p.action = Unchanged
	} else {
		r.inspect(p, live, result)
	}
	return p, nil
}
