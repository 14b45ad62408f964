package apply

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// write executes the plan of an object. An object without a plan is checked first.
func (r *run) write(ctx context.Context, s *step) error {
	if s.outcome != nil {
		return nil
	}
	if s.plan == nil {
		if err := r.checkLate(ctx, s); err != nil {
			return err
		}
	}
	s.attempted = true
	var err error
	s.outcome, err = r.execute(ctx, s.object, s.plan)
	return err
}

// servedBackoff bounds the wait for the server to serve a definition that was just established: 11 s in all.
var servedBackoff = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 14}

// checkLate checks an object right before it is written, after the objects that it depends on.
func (r *run) checkLate(ctx context.Context, s *step) error {
	err := r.retryUntilServed(ctx, s.deferred, func() (err error) {
		s.plan, err = r.checkObject(ctx, s.object)
		return err
	})
	switch {
	case dryRunUnsupported(err):
		s.plan = &plan{action: Configured, desired: s.manifest, version: unknownVersion}
		return nil
	case err != nil:
		return r.explain(s.object, err)
	case s.plan == nil:
		return problem("%s was deleted while it was compared", r.name(s.object))
	}
	return nil
}

// retryUntilServed calls check until the server serves the kind, and the ServiceAccount of a Pod exists. Without
// deferred, it calls check once.
func (r *run) retryUntilServed(ctx context.Context, deferred bool, check func() error) error {
	err := check()
	isEarly := func() bool { return isNotServedYet(err) || isAccountMissing(err) }
	if !deferred || !isEarly() {
		return err
	}
	waitCtx, cancel := r.waits.context(ctx, r.options.WaitTimeout)
	defer cancel()
	_ = wait.ExponentialBackoffWithContext(waitCtx, servedBackoff, func(context.Context) (bool, error) {
		err = check()
		return !isEarly(), nil
	}) // a timeout leaves the last error of check
	return err
}

// execute does what a plan says.
func (r *run) execute(ctx context.Context, o *object, p *plan) (*outcome, error) {
	out := &outcome{action: p.action, previousOwner: p.previousOwner}
	if p.action != Created && p.action != Configured {
		return out, nil
	}
	before, drifted := r.fieldsBeforeCorrection(ctx, o, p)
	r.beginWrite(r.req.Owner, o)
	var w written
	err := guard.Do("applying an object", func() (err error) {
		w, err = r.apply(ctx, o, p)
		return err
	})
	if err != nil {
		r.failWrite(r.req.Owner, o)
		return nil, err
	}
	switch {
	case p.version == "" || p.recreate || p.terminating:
		out.action = Created
	case w.version == w.live.GetResourceVersion():
		out.action = Unchanged
	}
	out.version = w.live.GetResourceVersion()
	if w.before != nil {
		out.previousOwner = otherOwner(w.before, r.req.Owner)
	}
	if p.live != nil {
		out.diff = r.difference(p.live, w.live)
	}
	r.commit(r.req.Owner, o, w.live, Unchanged)
	if drifted && out.action != Unchanged {
		r.recordCorrection(r.req.Owner, o, r.managers.lostFields(before, w.live.GetManagedFields()))
	}
	return out, nil
}

// written is what an apply did.
type written struct {
	before  *unstructured.Unstructured // live object before its managed fields were normalized; nil if they were not
	version string                     // of the object right before the apply
	live    *unstructured.Unstructured // after the apply
}

// apply applies an object. Where the plan calls for it, it deletes the live object or normalizes its fields first.
func (r *run) apply(ctx context.Context, o *object, p *plan) (w written, err error) {
	desired := p.desired
	w.version = p.version
	if p.recreate && !p.terminating {
		if err := r.delete(ctx, o); err != nil {
			return w, r.explain(o, err)
		}
	}
	if p.recreate || p.terminating {
		desired = o.manifest
		if err := r.waitDeleted(ctx, o.resource, o.ref); err != nil {
			return w, err
		}
	}
	n := normalization{convert: p.convertFields, takeOver: p.takeOver}
	normalizes := (n.convert || n.takeOver) && !p.recreate && !p.terminating
	if normalizes {
		var version string
		if w.before, version, err = r.normalize(ctx, o, n); err != nil {
			return w, r.explain(o, err)
		}
		if n.convert && !n.takeOver {
			w.version = version // the conversion alone is not a change of the object
		}
	}
	validated := patchOptions{validated: true}
	if w.live, err = r.patch(ctx, o, desired, validated); err != nil {
		return w, r.explain(o, err)
	}
	if !normalizes || !n.takeOver {
		return w, nil
	}
	// An object without managed fields has some after the first apply: those of the managers before it.
	if _, left := r.normalized(o, w.live, n); left {
		if _, _, err = r.normalize(ctx, o, n); err == nil {
			w.live, err = r.patch(ctx, o, desired, validated)
		}
	}
	if err != nil {
		return w, r.explain(o, err)
	}
	return w, nil
}

func (r *run) delete(ctx context.Context, o *object) error {
	policy := metav1.DeletePropagationBackground
	err := r.client(o.resource, o.ref.Namespace).
		Delete(ctx, o.ref.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if isGone(err) {
		return nil
	}
	return err
}

// transientBackoff bounds the retries against a server that is busy or has just lost its leader: 2 s in all.
var transientBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 5}

type patchOptions struct {
	dryRun    bool
	validated bool   // a dry-run has reported unknown fields already
	version   string // the apply conflicts if the live object has another version; empty for any version
}

// patch sends a server-side apply. It returns nil with an error.
func (r *run) patch(ctx context.Context, o *object, desired *unstructured.Unstructured,
	options patchOptions) (*unstructured.Unstructured, error) {
	if options.version != "" {
		desired = withVersion(desired, options.version)
	}
	data, err := desired.MarshalJSON()
	if err != nil {
		return nil, err
	}
	force := true // declared fields are applied whichever manager set them
	patchOptions := metav1.PatchOptions{FieldManager: r.managers.own, Force: &force}
	if options.dryRun {
		patchOptions.DryRun = []string{metav1.DryRunAll}
	} else if options.validated {
		patchOptions.FieldValidation = metav1.FieldValidationIgnore
	}
	var live *unstructured.Unstructured
	retriable := func(err error) bool {
		return isTransient(err) && (options.version == "" || !apierrors.IsConflict(err))
	}
	err = retry.OnError(transientBackoff, retriable, func() error {
		return guard.Do("applying an object", func() (err error) { // a write is never left without a result
			live, err = r.client(o.resource, o.ref.Namespace).
				Patch(ctx, o.ref.Name, types.ApplyPatchType, data, patchOptions)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return live, nil
}

// withVersion returns a shallow copy of an object with a resource version.
func withVersion(o *unstructured.Unstructured, version string) *unstructured.Unstructured {
	metadata, _ := o.Object["metadata"].(map[string]any)
	out := &unstructured.Unstructured{Object: maps.Clone(o.Object)}
	out.Object["metadata"] = maps.Clone(metadata)
	out.SetResourceVersion(version)
	return out
}
