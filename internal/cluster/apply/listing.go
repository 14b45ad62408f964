package apply

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// place is where objects of a resource are listed. The namespace is empty for resources without namespaces.
type place struct {
	resource  schema.GroupVersionResource
	namespace string
}

func (s *step) place() place { return place{s.resource, s.ref.Namespace} }

const (
	// listThreshold is the number of objects in a place from which on one list costs less than a request for each.
	listThreshold = 3
	listPage      = 500 // objects
)

// listLive lists the owner's live objects in places with several objects that are not tracked yet, as after a start.
func (r *run) listLive(ctx context.Context) {
	count := map[place]int{}
	for _, s := range r.steps {
		if s.ref.groupKind() != definitionKind && !r.lookup(r.req.Owner, s.object).tracked && !s.deferred &&
			r.req.Previous.Has(s.ref.Entry()) {
			count[s.place()]++
		}
	}
	for at, n := range count {
		if n >= listThreshold {
			_ = r.list(ctx, at) // after an error, the objects are requested one by one
		}
	}
}

// list keeps the live objects of the owner in a place for the comparison, if they are declared. Others may give objects
// the labels of the owner as well: the answers of the API server are bounded.
func (r *run) list(ctx context.Context, at place) error {
	declared := map[Ref]bool{}
	for _, s := range r.steps {
		if s.place() == at {
			declared[s.ref] = true
		}
	}
	ctx = BoundAnswers(ctx)
	options := metav1.ListOptions{Limit: listPage,
		LabelSelector: labels.SelectorFromSet(r.req.Owner.Labels()).String()}
	for {
		page, err := r.client(at.resource, at.namespace).List(ctx, options)
		if err != nil {
			return err
		}
		for n := range page.Items {
			if ref := RefOf(&page.Items[n]); declared[ref] {
				r.listed[ref] = &page.Items[n]
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// RefOf returns the reference of an object.
func RefOf(o *unstructured.Unstructured) Ref {
	gvk := o.GroupVersionKind()
	return Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// BoundAnswers returns a context for requests of a [Cluster] whose answers are bounded together, also those of the
// cluster of the controller: what they list is chosen by tenants.
func BoundAnswers(ctx context.Context) context.Context {
	return context.WithValue(guard.WithAnswers(ctx, guard.NewAnswers(guard.BudgetOf(ctx))), boundedKey{}, true)
}

// boundedKey marks the context of requests whose answers are bounded.
type boundedKey struct{}

type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req) //nolint:bodyclose // the caller closes it
	if err == nil && req.Context().Value(boundedKey{}) != nil {
		guard.LimitAnswer(req, resp)
	}
	return resp, err
}

// WrappedRoundTripper returns the transport that sends the requests.
func (b boundedTransport) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }
