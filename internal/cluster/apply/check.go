package apply

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/text/diff"
)

// unknownVersion is the version in the plan of an object that cannot be dry-run.
const unknownVersion = "unknown"

// check makes a plan for each object that may not be up to date. It writes nothing. It checks definitions and
// namespaces first, because objects that depend on new ones cannot be checked before those are written.
func (r *run) check(ctx context.Context) error {
	var bases, others, direct []*step
	for _, s := range r.steps {
		gk := s.ref.groupKind()
		switch {
		case gk == definitionKind, gk == namespaceKind:
			bases = append(bases, s)
		case s.direct:
			direct = append(direct, s)
		default:
			others = append(others, s)
		}
	}
	r.listLive(ctx)
	problems := each(ctx, r.options.Concurrency, bases, r.checkStep)
	for _, s := range others {
		s.deferred = s.deferred || slices.ContainsFunc(bases, s.isDefinedBy)
		s.inNew = slices.ContainsFunc(bases, s.isInNew)
	}
	problems = append(problems, each(ctx, r.options.Concurrency, others, r.checkStep)...)
	if refused(problems) != nil { // nothing will be written: report the problems of all objects
		problems = append(problems, each(ctx, r.options.Concurrency, direct, r.checkStep)...)
	}
	return refused(problems)
}

// isDefinedBy reports whether an object can only be checked after the definition of its kind is written, since the
// definition changes.
func (s *step) isDefinedBy(base *step) bool {
	return base.defines(s.ref.groupKind()) &&
		(base.plan == nil || base.plan.action != Unchanged && base.plan.action != Skipped)
}

// isInNew reports whether an object is in a namespace of the set that does not exist, or is being deleted.
func (s *step) isInNew(base *step) bool {
	return base.ref.groupKind() == namespaceKind && base.ref.Name == s.ref.Namespace && base.isNewNamespace()
}

func (s *step) isNewNamespace() bool {
	return s.ref.groupKind() == namespaceKind && s.plan != nil && s.plan.action == Created
}

// checkStep checks an object before it is written. The plan stays nil if the object depends on objects of the set that
// do not exist yet; a preview then estimates the change.
func (r *run) checkStep(ctx context.Context, s *step) (err error) {
	if s.deferred || s.inNew {
		s.plan, err = r.estimate(ctx, s)
		return err
	}
	p, err := r.checkInCreated(ctx, s)
	switch {
	case err == nil:
		s.plan = p
		return nil
	case namespaceMissing(err, s.ref.Namespace) && r.declares(namespaceKind, s.ref.Namespace):
	case r.missesDeclaredObject(s, err), dryRunUnsupported(err):
	case r.preview && r.req.Inspect && lacksRight(err): // estimated from the live object
	default:
		return r.explain(s.object, err)
	}
	s.plan, err = r.estimate(ctx, s)
	return err
}

// declares reports whether the set contains an object.
func (r *run) declares(gk schema.GroupKind, name string) bool {
	return slices.ContainsFunc(r.steps, func(s *step) bool { return s.ref.groupKind() == gk && s.ref.Name == name })
}

// missesDeclaredObject reports whether the server did not find another object that an earlier stage creates,
// such as the Role of a RoleBinding.
func (r *run) missesDeclaredObject(s *step, err error) bool {
	return slices.ContainsFunc(r.steps, func(o *step) bool {
		return r.options.rank(o.ref.groupKind()) < r.options.rank(s.ref.groupKind()) &&
			(o.ref.Namespace == "" || o.ref.Namespace == s.ref.Namespace) && isMissing(o.object, err)
	})
}

// checkObject makes a plan for an object, by a dry-run unless the object is known to be up to date. Errors are those of
// the API server. The plan is nil if the object was deleted while it was compared.
func (r *run) checkObject(ctx context.Context, o *object) (*plan, error) {
	owner, known := r.req.Owner, r.lookup(r.req.Owner, o)
	if IsExcluded(o.manifest, owner) {
		return &plan{action: Skipped}, nil
	}
	if known.upToDate && !r.req.Resync {
		return &plan{action: known.action}, nil
	}
	o.makeNative(r.req) // unless it was, as it has just drifted
	if isCreateOnly(o.manifest, owner) {
		if p, err := r.skipExisting(ctx, o); p != nil || err != nil {
			return p, err
		}
	}
	return r.compare(ctx, o, known, false)
}

// compare makes a plan from the live object if it shows that nothing would change, else from a dry-run. Retried is set
// for the second attempt.
func (r *run) compare(ctx context.Context, o *object, known knownState, retried bool) (*plan, error) {
	desired, err := r.withoutIgnored(ctx, o, known)
	if err != nil {
		return nil, err
	}
	if live := r.asApplied(ctx, o, desired, known); live != nil {
		p := &plan{version: live.GetResourceVersion(), previousOwner: otherOwner(live, r.req.Owner)}
		return r.planUnchanged(o, p, live), nil
	}
	return r.dryRun(ctx, o, desired, known, retried)
}

// dryRun makes a plan from the server's response to a dry-run of the apply.
func (r *run) dryRun(ctx context.Context, o *object, desired *unstructured.Unstructured, known knownState,
	retried bool) (*plan, error) {
	owner := r.req.Owner
	result, err := r.patch(ctx, o, desired, patchOptions{dryRun: true})
	if err != nil {
		return r.checkRefused(ctx, o, desired, err)
	}
	p := &plan{action: Configured, desired: desired, version: result.GetResourceVersion(),
		terminating: result.GetDeletionTimestamp() != nil}
	switch {
	case (p.version == "" || p.terminating) && r.expired(o, known):
		p.action = Unchanged
		return p, nil
	case p.version == "" || p.terminating:
		return r.planCreate(p), nil
	case IsExcluded(result, owner), isCreateOnly(result, owner): // the live object has the annotation
		return r.skipExisting(ctx, o)
	}
	if !keepsOtherFields(result, owner) {
		_, p.takeOver = r.takeOver(o, result, result.GetManagedFields())
	}
	p.previousOwner = r.previousOwner(o)
	digest := r.managers.digest(result)
	if !p.takeOver && known.tracked && known.version == p.version && known.digest == digest {
		return r.planUnchanged(o, p, result), nil
	}
	// If the object probably changes, it is applied without a comparison; an apply that changes nothing is harmless.
	changes := p.takeOver || known.tracked && !known.sameDeclaration
	report := changes && r.reportsDiff()
	if changes && !report {
		return p, nil
	}
	live, err := r.live(ctx, o, p.version)
	if err != nil {
		return nil, err
	}
	p.previousOwner = otherOwner(live, owner)
	switch {
	case !p.takeOver && r.managers.digest(live) == digest:
		return r.planUnchanged(o, p, result), nil
	case !p.takeOver && (!changes || r.preview) && valuesDigest(live) == valuesDigest(result):
		return r.planPartial(o, p, live), nil
	case !retried && live.GetResourceVersion() != p.version:
		return r.compare(ctx, o, known, true) // the object changed between the requests
	case report || known.sameDeclaration || r.reportsDiff():
		r.planDiff(o, p, live, result)
	}
	return p, nil
}

// expired reports whether an object was applied with the same declaration, and was then deleted by its time to live.
func (r *run) expired(o *object, known knownState) bool {
	return !r.req.RerunExpired && HasTTL(o.manifest) &&
		(known.sameDeclaration || r.req.SameDeclaration && r.req.Previous.Has(o.ref.Entry()))
}

func (r *run) planUnchanged(o *object, p *plan, live *unstructured.Unstructured) *plan {
	if !r.preview || r.track {
		r.commit(r.req.Owner, o, live, Unchanged)
	}
	p.action = Unchanged
	return p
}

// planPartial returns the plan to leave an object as it is that has all declared values, while an apply would change
// the owners of fields. Flux does not write such an object either.
func (r *run) planPartial(o *object, p *plan, live *unstructured.Unstructured) *plan {
	if !r.preview || r.track {
		r.commitPartial(r.req.Owner, o, live)
	}
	p.action = Unchanged
	return p
}

func (r *run) planCreate(p *plan) *plan {
	p.action = Created
	if r.preview {
		p.diff = r.difference(nil, p.desired)
		r.inspect(p, nil, p.desired)
	}
	return p
}

// skipExisting returns the plan to skip an object that exists; nil if it does not.
func (r *run) skipExisting(ctx context.Context, o *object) (*plan, error) {
	live, err := r.client(o.resource, o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.planSkip(o, live), nil
}

// planSkip returns the plan not to modify a live object. An object of the owner is tracked, so that the watch reports
// when the annotation changes.
func (r *run) planSkip(o *object, live *unstructured.Unstructured) *plan {
	if (!r.preview || r.track) && r.req.Owner.owns(live.GetLabels()) {
		r.commit(r.req.Owner, o, live, Skipped)
	}
	return &plan{action: Skipped}
}

// checkRefused makes a plan for an object whose dry-run the server refused, if the refusal can be resolved: by the
// normalization of managed fields, or by deleting and creating the object. Otherwise it returns the refusal.
func (r *run) checkRefused(ctx context.Context, o *object, desired *unstructured.Unstructured,
	refusal error) (*plan, error) {
	if !apierrors.IsInvalid(refusal) && !apierrors.IsForbidden(refusal) && !isVersionConflict(refusal) {
		return nil, refusal
	}
	live, err := r.client(o.resource, o.ref.Namespace).Get(ctx, o.ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, refusal // more helpful than err
	}
	if IsExcluded(live, r.req.Owner) {
		return r.planSkip(o, live), nil
	}
	p, err := r.checkNormalized(ctx, o, desired, live, isVersionConflict(refusal))
	if p != nil {
		return p, nil
	}
	if err != nil {
		refusal = err
	}
	if !isImmutable(refusal) || !r.req.Force && !allowsRecreate(desired, r.req.Owner) {
		return nil, refusal
	}
	// An object that cannot be created again must not be deleted.
	if err := r.validate(ctx, o); err != nil {
		return nil, err
	}
	p = &plan{action: Configured, desired: o.manifest, version: live.GetResourceVersion(), recreate: true,
		terminating: live.GetDeletionTimestamp() != nil, previousOwner: otherOwner(live, r.req.Owner)}
	if r.reportsDiff() {
		r.planDiff(o, p, live, diff.Overlay(live, o.manifest))
	}
	return p, nil
}

// validate dry-runs the creation of an object that exists. It returns only errors about the declaration: others are due
// to the object that has the same name.
func (r *run) validate(ctx context.Context, o *object) error {
	_, err := r.client(o.resource, o.ref.Namespace).Create(ctx, o.manifest, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: r.managers.own, FieldValidation: metav1.FieldValidationStrict,
	})
	if dryRunUnsupported(err) || err == nil || strings.Contains(err.Error(), "already allocated") {
		return nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return r.explain(o, err)
	}
	return nil
}

// live returns the live object at a version, or a newer one.
func (r *run) live(ctx context.Context, o *object, version string) (*unstructured.Unstructured, error) {
	if listed := r.listed[o.ref]; listed != nil && listed.GetResourceVersion() == version {
		return listed, nil
	}
	client := r.client(o.resource, o.ref.Namespace)
	// Version 0 is served from the watch cache of the server, which costs it less.
	cached, err := client.Get(ctx, o.ref.Name, metav1.GetOptions{ResourceVersion: "0"})
	if err == nil && cached.GetResourceVersion() == version {
		return cached, nil
	}
	return client.Get(ctx, o.ref.Name, metav1.GetOptions{})
}

// otherOwner returns the owner of a live object if it is another one; zero otherwise.
func otherOwner(live *unstructured.Unstructured, owner Owner) Owner {
	if o := ownerOf(live.GetLabels(), owner.Group); o != owner {
		return o
	}
	return Owner{}
}
