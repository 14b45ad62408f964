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

// selectDirect selects the new objects that need no dry-run: they have no effect before others refer to them, and are
// deleted again if one of them is refused.
func (r *run) selectDirect(ctx context.Context) (direct []*step) {
	if r.preview || len(r.req.Ignore) > 0 || r.refusedBefore(r.req.Owner) {
		return nil
	}
	previous := r.req.Previous.ids()
	for _, s := range r.steps {
		known := r.lookup(r.req.Owner, s.object)
		isNew := !known.tracked && !previous[s.ref.Entry().ID] && !s.deferred
		switch {
		case IsExcluded(s.manifest, r.req.Owner), known.upToDate && !r.req.Resync:
		case r.options.rank(s.ref.groupKind()) < r.options.rank(serviceAccountKind):
			return nil // definitions, namespaces, quotas and policies come before all objects that they are for
		case isNew && !isCreateOnly(s.manifest, r.req.Owner) && isInert(s.manifest) && r.mayDelete(ctx, s.resource):
			direct = append(direct, s)
		}
	}
	return direct
}

// writeDirect creates objects without a dry-run. If one is refused, the others are deleted again, so that the cluster
// is as it was. Until the owner's objects are applied, none is created this way again: retries would create and delete
// them again and again.
func (r *run) writeDirect(ctx context.Context, direct []*step) error {
	problems := each(ctx, r.options.Concurrency, direct, r.createDirect)
	if !slices.ContainsFunc(direct, func(s *step) bool { return s.refused }) {
		return failed(problems)
	}
	r.noteRefusal(r.req.Owner)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		rollbackTimeout+rollbackTime*time.Duration(len(direct)))
	defer cancel()
	left := each(ctx, r.options.Concurrency, direct, r.rollBack)
	if failed(left) != nil {
		return failed(append(problems, left...))
	}
	return refused(problems)
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

// createDirect creates an object. If it exists, it is checked by a dry-run instead.
func (r *run) createDirect(ctx context.Context, s *step) error {
	s.attempted = true
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
	s.outcome, s.attempted = nil, false
	return nil
}

// isRefusal reports whether the API server rejected an object, so that a retry would be rejected, too. The server
// answers objects that it cannot convert or decode, and failures of webhooks, with status 500. All such answers count,
// not only some texts: what is undone after a failure that was not about the object is written again by the next pass.
// Answers about the request or the load of the server do not count.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := int(status.Status().Code); code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	default:
		return code >= http.StatusBadRequest
	}
}
