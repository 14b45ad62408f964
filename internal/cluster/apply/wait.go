package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	defaultWaitTimeout = 10 * time.Second
	// pollInterval is the interval between requests for an object whose watch broke or is not allowed.
	pollInterval = 500 * time.Millisecond
)

// waitingError marks the error of a wait that timed out.
type waitingError struct{ error }

func (e waitingError) Unwrap() error { return e.error }

// IsWaiting reports whether an error means that the call waited for the cluster until [ClusterOptions.WaitTimeout]: for
// a definition to be served, or for the deletion of an object. Calling again goes on with the wait.
func IsWaiting(err error) bool { return errors.As(err, &waitingError{}) }

// waitBudget limits all waits of one call together. The time starts with the first wait.
type waitBudget struct {
	once     sync.Once
	deadline time.Time
}

func (b *waitBudget) context(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	b.once.Do(func() { b.deadline = time.Now().Add(timeout) })
	return context.WithDeadline(ctx, b.deadline)
}

// waitFor watches an object until done returns true for it. Done is called with nil if the object does not exist. It
// returns the last object that it has seen, and the context's error if that ends first.
func (c *Cluster) waitFor(ctx context.Context, resource schema.GroupVersionResource, ref Ref,
	done func(*unstructured.Unstructured) bool) (*unstructured.Unstructured, error) {
	client := c.client(resource, ref.Namespace)
	for {
		last, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			last = nil
		case err != nil:
			return nil, err
		}
		if done(last) {
			return last, nil
		}
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).
			String()}
		if last != nil {
			options.ResourceVersion = last.GetResourceVersion()
		}
		if w, err := client.Watch(ctx, options); err == nil {
			seen, ok := readUntil(ctx, w, done)
			w.Stop()
			if ok {
				return seen, nil
			}
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// readUntil reads a watch until done returns true. It reports false if the watch ends before that.
func readUntil(ctx context.Context, w apiwatch.Interface,
	done func(*unstructured.Unstructured) bool) (*unstructured.Unstructured, bool) {
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case e, ok := <-w.ResultChan():
			o, isObject := e.Object.(*unstructured.Unstructured)
			if !ok || !isObject || e.Type == apiwatch.Error {
				return nil, false
			}
			if e.Type == apiwatch.Deleted {
				o = nil
			}
			if e.Type != apiwatch.Bookmark && done(o) {
				return o, true
			}
		}
	}
}

// waitDeleted waits until an object does not exist.
func (r *run) waitDeleted(ctx context.Context, resource schema.GroupVersionResource, ref Ref) error {
	waitCtx, cancel := r.waits.context(ctx, r.options.WaitTimeout)
	defer cancel()
	last, err := r.waitFor(waitCtx, resource, ref, func(o *unstructured.Unstructured) bool { return o == nil })
	if err == nil {
		return nil
	}
	if waitCtx.Err() == nil {
		return problem("cannot wait for the deletion of %s", ref).Because(err)
	}
	f := problem("%s is being deleted, and still exists after %s", ref, r.options.WaitTimeout)
	if last != nil && len(last.GetFinalizers()) > 0 {
		f = f.WithHint("Its finalizers block the deletion: %s. Check the controllers that set them",
			strings.Join(last.GetFinalizers(), ", "))
	} else {
		f = f.WithHint("It may only need time, as a Namespace with objects; its conditions say what blocks the " +
			"deletion")
	}
	return timedOut(ctx, f)
}

// timedOut marks the error of a wait for [IsWaiting], unless the context of the call ended.
func timedOut(ctx context.Context, f *fault.Fault) error {
	if ctx.Err() != nil {
		return f
	}
	return waitingError{f}
}

// waitEstablished waits until the cluster serves the definitions of a stage that changed.
func (r *run) waitEstablished(ctx context.Context, stage []*step) error {
	var definitions []*step
	for _, s := range stage {
		if s.ref.groupKind() == definitionKind &&
			(s.outcome.action == Created || s.outcome.action == Configured || r.isNeeded(s)) {
			definitions = append(definitions, s)
		}
	}
	if len(definitions) == 0 {
		return nil
	}
	defer r.mapper.Reset()
	return failed(each(ctx, r.options.Concurrency, definitions, func(ctx context.Context, s *step) error {
		waitCtx, cancel := r.waits.context(ctx, r.options.WaitTimeout)
		defer cancel()
		reason := ""
		_, err := r.waitFor(waitCtx, s.resource, s.ref, func(o *unstructured.Unstructured) (ok bool) {
			ok, reason = isEstablished(o)
			return ok
		})
		switch {
		case err == nil:
			return nil
		case waitCtx.Err() != nil:
			return timedOut(ctx, problem("%s is not established after %s", s.ref, r.options.WaitTimeout).
				WithHint("%s", reason))
		default:
			return r.explain(s.object, err)
		}
	}))
}

// isNeeded reports whether objects of the set wait for a definition.
func (r *run) isNeeded(definition *step) bool {
	for _, s := range r.steps {
		if s.deferred && definition.defines(s.ref.groupKind()) {
			return true
		}
	}
	return false
}

// isEstablished reports whether a definition is served; if not, it returns the reason.
func isEstablished(o *unstructured.Unstructured) (established bool, reason string) {
	if o == nil {
		return false, "It was deleted"
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return false, err.Error()
	}
	var reasons []string
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if m["type"] == "Established" && m["status"] == "True" {
			return true, ""
		}
		if m["status"] == "False" {
			reasons = append(reasons, fmt.Sprintf("%v: %v", m["type"], m["message"]))
		}
	}
	if len(reasons) == 0 {
		return false, "It has no conditions yet"
	}
	return false, "Its conditions: " + strings.Join(reasons, ", ")
}
