package apply

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// isInert reports whether an object has no effect before other objects refer to it, or before pods are there that it
// selects. So one that was just created can be deleted again without consequences. Annotations may ask other
// controllers for more, such as a DNS record or a certificate.
func isInert(o *unstructured.Unstructured) bool {
	switch o.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "ConfigMap"}, schema.GroupKind{Kind: "Secret"}, serviceAccountKind:
		return true
	case schema.GroupKind{Kind: "Service"}:
		kind, _, err := unstructured.NestedString(o.Object, "spec", "type")
		_, external, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "externalIPs")
		return err == nil && (kind == "" || kind == string(corev1.ServiceTypeClusterIP)) && !external &&
			len(o.GetAnnotations()) == 0
	case schema.GroupKind{Group: networkingv1.GroupName, Kind: "Ingress"}:
		return len(o.GetAnnotations()) == 0 && namesHosts(o)
	}
	return false
}

// namesHosts reports whether all rules of an Ingress are for a host, so that it takes no requests of other hosts.
func namesHosts(ingress *unstructured.Unstructured) bool {
	rules, _, err := unstructured.NestedSlice(ingress.Object, "spec", "rules")
	_, all, _ := unstructured.NestedFieldNoCopy(ingress.Object, "spec", "defaultBackend")
	return err == nil && !all && !slices.ContainsFunc(rules, func(rule any) bool {
		host, _, err := unstructured.NestedString(asMap(rule), "host")
		return err != nil || host == "" || strings.Contains(host, "*")
	})
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// nonexistentVersion is a resource version that no object has. An apply with this version creates the object, or
// conflicts if it exists.
const nonexistentVersion = "1"

// Undoing direct writes takes at most rollbackTimeout, and rollbackTime for each object.
const (
	rollbackTimeout = 30 * time.Second
	rollbackTime    = 20 * time.Millisecond
)

// directWrites are objects that are written without a dry-run, before all others and after those were checked.
type directWrites struct {
	inert []*step // new objects that are deleted again if one of these objects is refused
	// lead is the first object that takes effect and needs a write; nil if there is none. It is written after the inert
	// objects. If it is refused, it has not changed.
	lead *step
	// certain are changed objects that cannot be refused. They are written after the inert objects, instead of a lead.
	// If one is refused all the same, they are set back.
	certain []*step
}

// selectDirect selects the objects that need no dry-run.
func (r *run) selectDirect(ctx context.Context) (direct directWrites) {
	if r.preview || len(r.req.Ignore) > 0 || r.refusedBefore(r.req.Owner) {
		return direct
	}
	previous, rollsBack := r.req.Previous.ids(), true
	var changed []*step
	// Whether the next object that takes effect is the first one. With Resync, one before it may turn out to differ.
	first := !r.req.Resync
	for _, s := range r.steps {
		known, gk := r.lookup(r.req.Owner, s.object), s.ref.groupKind()
		isNew := !known.tracked && !previous[s.ref.Entry().ID] && !s.deferred
		switch {
		case IsExcluded(s.manifest, r.req.Owner), known.upToDate && !r.req.Resync:
		case gk == definitionKind, gk == namespaceKind: // others may depend on it
			return directWrites{}
		case isCreateOnly(s.manifest, r.req.Owner):
			first = false
		case isNew && rollsBack && isInert(s.manifest) && r.mayDelete(ctx, s.resource):
			direct.inert = append(direct.inert, s)
		default:
			isChanged := known.tracked && !known.sameDeclaration
			if isChanged {
				changed = append(changed, s)
			}
			if first && (isNew || isChanged) {
				direct.lead = s
			}
			first = false
			// Policies, quotas and the like come before all objects that they are for.
			rollsBack = rollsBack && r.options.rank(gk) >= r.options.rank(serviceAccountKind)
		}
	}
	if r.req.Resync {
		return direct
	}
	if direct.certain = r.selectCertain(ctx, changed); len(direct.certain) > 0 {
		direct.lead = nil // if it was refused, others would have changed for a moment
	}
	return direct
}

func (d directWrites) all() []*step {
	all := append(slices.Clone(d.inert), d.certain...)
	if d.lead != nil {
		all = append(all, d.lead)
	}
	return all
}

// writeDirect writes objects without a dry-run. If one is refused, those that were created are deleted again, and those
// that were changed are set back, so that the cluster is as it was; so is the inventory, if it was saved. Until the
// owner's objects are applied, none is written this way: retries would write and undo them again and again.
func (r *run) writeDirect(ctx context.Context, direct directWrites, saved bool) error {
	wasRefused := func(s *step) bool { return s.refused }
	var problems []error
	for _, batch := range direct.batches(r) {
		write := batch.write
		if failed(problems) != nil {
			if !slices.ContainsFunc(direct.all(), wasRefused) {
				return failed(problems)
			}
			write = r.checkInstead // for its problems
		}
		problems = append(problems, each(ctx, r.options.Concurrency, batch.steps, write)...)
	}
	if !slices.ContainsFunc(direct.all(), wasRefused) {
		return failed(problems)
	}
	r.noteRefusal(r.req.Owner)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		rollbackTimeout+rollbackTime*time.Duration(len(direct.all())))
	defer cancel()
	left := append(each(ctx, r.options.Concurrency, direct.inert, r.rollBack),
		each(ctx, r.options.Concurrency, direct.certain, r.setBack)...)
	if failed(left) != nil {
		return failed(append(problems, left...))
	}
	if saved {
		if err := r.req.SaveInventory(r.req.Previous); err != nil {
			return failed(append(problems, err))
		}
	}
	return refused(problems)
}

// batch is a part of the direct writes that is written at once.
type batch struct {
	steps []*step
	write func(context.Context, *step) error
}

// batches returns the direct writes in their order. Of the objects that cannot be refused, the first one shows whether
// that is so.
func (d directWrites) batches(r *run) []batch {
	out := []batch{{d.inert, r.createDirect}}
	if d.lead != nil {
		out = append(out, batch{[]*step{d.lead}, r.writeLead})
	}
	if len(d.certain) > 0 {
		out = append(out, batch{d.certain[:1], r.changeListed}, batch{d.certain[1:], r.changeListed})
	}
	return out
}

// writeLead writes the first object that takes effect.
func (r *run) writeLead(ctx context.Context, s *step) error {
	if r.lookup(r.req.Owner, s.object).tracked {
		return r.changeDirect(ctx, s)
	}
	return r.createDirect(ctx, s)
}

// refusedBefore reports whether an object of the owner was refused that was written without a dry-run, and the objects
// were not applied since.
func (c *Cluster) refusedBefore(owner Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[owner]
}

func (c *Cluster) noteRefusal(owner Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[owner] = true
}

// createDirect creates an object. If it exists, it is dry-run instead.
func (r *run) createDirect(ctx context.Context, s *step) error {
	r.beginWrite(r.req.Owner, s.object)
	live, err := r.patch(ctx, s.object, s.manifest, patchOptions{version: nonexistentVersion})
	switch {
	case apierrors.IsConflict(err), apierrors.IsInvalid(err): // the dry-run finds out whether another form is valid
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
	before, err := r.live(ctx, s.object, r.lookup(r.req.Owner, s.object).version)
	if err != nil || !r.needsOnlyApply(s.object, before) {
		return r.checkInstead(ctx, s)
	}
	return r.applyTo(ctx, s, before)
}

// applyTo applies an object to a live object that needs only an apply. If it is refused, or has changed since, it is
// dry-run.
func (r *run) applyTo(ctx context.Context, s *step, before *unstructured.Unstructured) error {
	owner := r.req.Owner
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
