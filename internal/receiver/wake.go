package receiver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

const (
	atOnce = 8   // objects that a request patches at once
	page   = 500 // objects that are listed at once
	// of a body that a filter reads, of which each takes up to a hundred bytes of memory: a push of a
	// thousand commits has some ten thousand
	maxValues = 500_000
	owner     = "sluice-receiver"
)

// waker wakes objects, and turns gates.
type waker struct {
	reader client.Reader // past the cache, which may not have what was created a moment ago
	writer client.Writer
	mapper apimeta.RESTMapper
}

// call is one request that is acted on.
type call struct {
	*plan
	by        *notificationv1.Receiver
	variables map[string]any // of filters
	at        time.Time
}

func newCall(p *plan, by *notificationv1.Receiver, d hook.Delivery, body []byte, at time.Time) (*call, error) {
	c := &call{plan: p, by: by, at: at, variables: map[string]any{"claims": d.Claims, "req": map[string]any{}}}
	for _, t := range p.targets {
		if len(t.filters) == 0 || len(body) == 0 {
			continue
		}
		req, err := read(body)
		if err != nil {
			return nil, err
		}
		c.variables["req"] = req
		break
	}
	return c, nil
}

// read makes of a body what filters see. It takes no more memory for a body of braces than for one of text.
func read(body []byte) (any, error) {
	values := 0
	for _, c := range body {
		if c == ',' || c == '[' || c == '{' { // in strings, too: then it is too many by some
			values++
		}
	}
	if values > maxValues {
		return nil, &hook.Refusal{Status: http.StatusRequestEntityTooLarge,
			Why: fmt.Sprintf("the body has more than %d values, which the receiver's filter reads", maxValues)}
	}
	var req any
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, &hook.Refusal{Status: http.StatusBadRequest,
			Why: "the body is no JSON, which the receiver's filter reads"}
	}
	return req, nil
}

// wake annotates what the call selects, and returns how many objects that were. Every object is tried,
// whatever becomes of the others.
func (w *waker) wake(ctx context.Context, c *call) (int64, error) {
	var woken atomic.Int64
	var group errgroup.Group
	group.SetLimit(atOnce)
	var failed error
	for _, t := range c.targets {
		err := w.each(ctx, t, func(o *metav1.PartialObjectMetadata) error {
			selected, err := c.selects(ctx, t, o)
			if err != nil || !selected {
				return err
			}
			patch, err := c.patch(t)
			if err != nil {
				return err
			}
			group.Go(func() error {
				err := w.writer.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner))
				if err == nil {
					woken.Add(1)
				} else if !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s '%s/%s': %w", t.Kind, o.Namespace, o.Name, err)
				}
				return nil
			})
			return nil
		})
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s '%s/%s': %w", t.Kind, t.namespace, t.name, err)
		}
	}
	if err := group.Wait(); err != nil {
		failed = err
	}
	return woken.Load(), failed
}

// each visits the metadata of what a target selects by name or label; what is not there is no error.
func (w *waker) each(ctx context.Context, t target, visit func(*metav1.PartialObjectMetadata) error) error {
	mapping, err := w.mapper.RESTMapping(t.GroupKind)
	if err != nil {
		return err
	}
	if t.name != notificationv1.AnyName {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(mapping.GroupVersionKind)
		err := w.reader.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, o)
		if err == nil {
			return visit(o)
		}
		return client.IgnoreNotFound(err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(t.Kind + "List"))
	for {
		err := w.reader.List(ctx, list, client.InNamespace(t.namespace), client.MatchingLabels(t.labels),
			client.Limit(page), client.Continue(list.Continue))
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			o.SetGroupVersionKind(mapping.GroupVersionKind)
			if err := visit(o.DeepCopy()); err != nil {
				return err
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// selects evaluates the filters on an object. A filter that fails selects nothing.
func (c *call) selects(ctx context.Context, t target, o *metav1.PartialObjectMetadata) (bool, error) {
	if len(t.filters) == 0 {
		return true, nil
	}
	res, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return false, err
	}
	variables := expression.Map{"res": res, "req": c.variables["req"], "claims": c.variables["claims"]}
	for _, f := range t.filters {
		holds, err := f.Holds(ctx, variables)
		if err != nil {
			return false, &hook.Refusal{Status: http.StatusUnprocessableEntity,
				Why: "a filter of the receiver cannot be evaluated on this request"}
		}
		if !holds {
			return false, nil
		}
	}
	return true, nil
}

// patch asks an object for a reconcile, or a gate to open or close.
func (c *call) patch(t target) ([]byte, error) {
	at := c.at.UTC().Format(time.RFC3339Nano)
	annotations := map[string]any{meta.ReconcileRequestAnnotation: at}
	if t.Kind == gateKind {
		verb := gatingv1.OpenPrefix
		if c.action == notificationv1.CloseAction {
			verb = gatingv1.ClosePrefix
		}
		annotations = map[string]any{
			verb + gatingv1.RequestedAtSuffix: at,
			verb + gatingv1.ReasonSuffix:      fmt.Sprintf("webhook of Receiver '%s/%s'", c.by.Namespace, c.by.Name),
			// Those of an earlier request say nothing of this one.
			verb + gatingv1.RequestedBySuffix: nil, verb + gatingv1.WindowSuffix: nil,
			verb + gatingv1.RevisionSuffix: nil,
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
}
