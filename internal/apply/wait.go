package apply

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// defaultPatience is how long definitions may take to be served, and objects to go.
	defaultPatience = 30 * time.Second
	// again is how soon an object is asked for again whose watch broke or is not allowed.
	again = 500 * time.Millisecond
)

// until waits until done says so of an object, nil once it is not there, woken by its changes. It returns the
// object that it saw last, and the context's error if that ends first.
func (c *Cluster) until(ctx context.Context, resource schema.GroupVersionResource, ref Ref,
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
			seen, ok := drain(ctx, w, done)
			w.Stop()
			if ok {
				return seen, nil
			}
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(again):
		}
	}
}

// drain reads a watch until done says so; it reports false if the watch ends before.
func drain(ctx context.Context, w watch.Interface,
	done func(*unstructured.Unstructured) bool) (*unstructured.Unstructured, bool) {
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case e, ok := <-w.ResultChan():
			o, isObject := e.Object.(*unstructured.Unstructured)
			if !ok || !isObject || e.Type == watch.Error {
				return nil, false
			}
			if e.Type == watch.Deleted {
				o = nil
			}
			if e.Type != watch.Bookmark && done(o) {
				return o, true
			}
		}
	}
}

// gone waits until an object is not there.
func (c *Cluster) gone(ctx context.Context, resource schema.GroupVersionResource, ref Ref) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.WaitTimeout)
	defer cancel()
	last, err := c.until(ctx, resource, ref, func(o *unstructured.Unstructured) bool { return o == nil })
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		return problem("cannot wait for the end of %s", ref).Because(err)
	}
	f := problem("%s is being deleted, and did not go within %s", ref, c.options.WaitTimeout)
	if last != nil && len(last.GetFinalizers()) > 0 {
		return f.WithHint("Its finalizers hold it: %s. Whoever set them has to let go",
			strings.Join(last.GetFinalizers(), ", "))
	}
	return f.WithHint("Look at what it still holds")
}

// established waits until the definitions of a stage that changed are served.
func (r *run) established(ctx context.Context, stage []*item) error {
	var definitions []*item
	for _, i := range stage {
		if i.ref.groupKind() == definitionKind && (i.action == Created || i.action == Configured || r.awaited(i)) {
			definitions = append(definitions, i)
		}
	}
	if len(definitions) == 0 {
		return nil
	}
	defer r.mapper.Reset()
	return failed(r.each(ctx, definitions, func(ctx context.Context, i *item) error {
		ctx, cancel := context.WithTimeout(ctx, r.options.WaitTimeout)
		defer cancel()
		why := ""
		_, err := r.until(ctx, i.resource, i.ref, func(o *unstructured.Unstructured) bool {
			ok, says := isEstablished(o)
			why = says
			return ok
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return problem("%s is not established after %s", i.ref, r.options.WaitTimeout).WithHint("%s", why)
		default:
			return r.explain(i, err)
		}
	}))
}

// awaited tells whether objects of the set wait for a definition.
func (r *run) awaited(definition *item) bool {
	for _, i := range r.items {
		if i.deferred && definition.defines(i.ref.groupKind()) {
			return true
		}
	}
	return false
}

// isEstablished tells whether a definition is served, and if not, what it says of that.
func isEstablished(o *unstructured.Unstructured) (established bool, why string) {
	if o == nil {
		return false, "It was deleted"
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return false, err.Error()
	}
	var says []string
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if !ok {
			continue
		}
		if m["type"] == "Established" && m["status"] == "True" {
			return true, ""
		}
		if m["status"] == "False" {
			says = append(says, fmt.Sprintf("%v: %v", m["type"], m["message"]))
		}
	}
	if len(says) == 0 {
		return false, "It has no conditions yet"
	}
	return false, "It says: " + strings.Join(says, ", ")
}
