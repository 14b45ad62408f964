package receiver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

const (
	maxParallel = 8   // patches of a request in flight
	pageSize    = 500 // objects in one list request
	// maxValues bounds the JSON values in a body that a filter reads. A push of a thousand commits has about ten
	// thousand.
	maxValues     = 500_000
	valueBytes    = 400              // memory of a value, which may be an entry of a map
	memoryTimeout = 10 * time.Second // of waiting for it
)

// requester annotates objects: to request a reconcile, or to open or close a Gate.
type requester struct {
	reader client.Reader // not the cache, which may lack new objects
	writer client.Writer
	mapper apimeta.RESTMapper
}

// call is an accepted request.
type call struct {
	*plan
	receiver  *notificationv1.Receiver
	variables map[string]any // of filters
	at        time.Time
}

// reserve takes the memory that the filters of a Receiver and a body for them need. Without filters the lease is nil.
func reserve(ctx context.Context, r *notificationv1.Receiver, body []byte) (*guard.Lease, error) {
	filters := len(filtersOf(r))
	if filters == 0 {
		return nil, nil //nolint:nilnil // no memory is needed
	}
	values, err := valuesOf(body)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(guard.WithOwner(ctx, r.Namespace), memoryTimeout)
	defer cancel()
	lease, err := guard.BudgetOf(ctx).Acquire(waiting, "filtering a webhook",
		int64(filters*expressionBytes+len(body)+values*valueBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", &hook.Refusal{Status: http.StatusServiceUnavailable,
			Why: "the controller has no memory for the filter of the receiver"}, err)
	}
	return lease, nil
}

// read decodes a body for the filters, if there are any.
func (c *call) read(d hook.Delivery, body []byte) error {
	c.variables = map[string]any{"claims": d.Claims, "req": map[string]any{}}
	filtered := slices.ContainsFunc(c.targets, func(t target) bool { return len(t.filters) > 0 })
	if !filtered || len(body) == 0 {
		return nil
	}
	var req any
	if err := json.Unmarshal(body, &req); err != nil {
		return &hook.Refusal{Status: http.StatusBadRequest,
			Why: "the body is not JSON, which the filter of the receiver requires"}
	}
	c.variables["req"] = req
	return nil
}

// valuesOf returns the number of JSON values in a body, or more. It returns an error if a filter must not read so many.
func valuesOf(body []byte) (int, error) {
	values := 1
	for _, c := range body {
		if c == ',' || c == '[' || c == '{' { // also in strings: an upper bound is enough
			values++
		}
	}
	if values > maxValues {
		return 0, &hook.Refusal{Status: http.StatusRequestEntityTooLarge,
			Why: fmt.Sprintf("the body has more than %d values, the maximum for the filter of the receiver", maxValues)}
	}
	return values, nil
}

// request annotates the objects that a call selects and returns their number. After an error it continues with the
// other objects, and returns an error at the end.
func (r *requester) request(ctx context.Context, c *call) (int64, error) {
	var count atomic.Int64
	group := guard.NewGroup("annotating objects")
	group.SetLimit(maxParallel)
	var firstErr error
	for _, t := range c.targets {
		err := r.each(ctx, t, func(o *metav1.PartialObjectMetadata) error {
			selected, err := c.selects(ctx, t, o)
			if err != nil || !selected {
				return err
			}
			patch, err := c.patch(t)
			if err != nil {
				return err
			}
			group.Go(func() error {
				err := r.writer.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch),
					client.FieldOwner(meta.ReceiverFieldOwner))
				if err == nil {
					count.Add(1)
				} else if !apierrors.IsNotFound(err) {
					return fmt.Errorf("%s '%s/%s': %w", t.Kind, o.Namespace, o.Name, err)
				}
				return nil
			})
			return nil
		})
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("%s '%s/%s': %w", t.Kind, t.namespace, t.name, err)
		}
	}
	if err := group.Wait(); err != nil {
		firstErr = err
	}
	return count.Load(), firstErr
}

// each calls visit with the metadata of each object that a target selects by name or label. An object that does not
// exist is an error, so that the sender shows that the Receiver is wrong; labels that select none are not.
func (r *requester) each(ctx context.Context, t target, visit func(*metav1.PartialObjectMetadata) error) error {
	mapping, err := r.mapper.RESTMapping(t.GroupKind)
	if err != nil {
		return err
	}
	if t.name != notificationv1.AnyName {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(mapping.GroupVersionKind)
		if err := r.reader.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, o); err != nil {
			return err
		}
		return visit(o)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(t.Kind + "List"))
	for {
		err := r.reader.List(ctx, list, client.InNamespace(t.namespace), client.MatchingLabels(t.labels),
			client.Limit(pageSize), client.Continue(list.Continue))
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

// selects evaluates the filters for an object. It returns an error if a filter fails.
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
				Why: "a filter of the receiver failed for this request"}
		}
		if !holds {
			return false, nil
		}
	}
	return true, nil
}

// patch returns the annotations that request a reconcile, or open or close a Gate.
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
			verb + gatingv1.ReasonSuffix: fmt.Sprintf("webhook of Receiver '%s/%s'", c.receiver.Namespace,
				c.receiver.Name),
			// removes the annotations of an earlier request
			verb + gatingv1.RequestedBySuffix: nil, verb + gatingv1.WindowSuffix: nil,
			verb + gatingv1.RevisionSuffix: nil,
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
}
