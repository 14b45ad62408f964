package ui

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// maxPendingRead bounds how many waiting objects are read for the inbox.
const maxPendingRead = 100

// gateEntry is a gate in the inbox.
type gateEntry struct {
	Item    *view.Item `json:"item"`
	Seen    []string   `json:"seen"` // to send with a decision
	Waiting []waiting  `json:"waiting"`
}

// waiting is an object at a gate, with what would change.
type waiting struct {
	view.Waiter
	Why     string        `json:"why,omitempty"` // what holds the change, such as a rule of the gate
	Pending *meta.Pending `json:"pending,omitempty"`
	Error   string        `json:"error,omitempty"` // why the change cannot be shown
}

// gates returns the inbox: all gates, those where something waits first, with the changes that wait.
func (s *Server) gates(ctx context.Context, u *User, _ *http.Request) (any, error) {
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	items := s.Model.List(func(i *view.Item) bool { return i.Gate != nil && may(i) })
	slices.SortStableFunc(items, func(a, b *view.Item) int { return int(b.Gate.Count - a.Gate.Count) })
	entries := []gateEntry{}
	reads := 0
	for _, i := range items {
		e := gateEntry{Item: i, Seen: []string{}, Waiting: []waiting{}}
		for _, w := range i.Gate.Waiting {
			entry := waiting{Waiter: w}
			if reads++; reads <= maxPendingRead {
				entry.read(ctx, u, s.Model.Get(w.ID, may))
			}
			e.Seen = append(e.Seen, entry.seen())
			e.Waiting = append(e.Waiting, entry)
		}
		entries = append(entries, e)
	}
	return map[string]any{"kind": gatingv1.GateKind, "gates": entries}, nil
}

// read adds the change of an object that waits.
func (w *waiting) read(ctx context.Context, u *User, i *view.Item) {
	if i == nil {
		w.Error = "you may not see this object"
		return
	}
	o := kind.ByName(i.Kind).New()
	if err := u.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Name}, o); err != nil {
		w.Error = explain(err)
		return
	}
	g, ok := o.(reconcile.Gated)
	if !ok {
		return
	}
	w.Pending = g.Held().Pending
	for _, c := range o.CommonStatus().Conditions {
		if c.Type == meta.ApprovedCondition && c.Status == metav1.ConditionFalse ||
			c.Type == meta.BlockedCondition && c.Status == metav1.ConditionTrue {
			w.Why = c.Message
		}
	}
}

// seen identifies the change that is shown. It can be newer than the one that the gate lists; then a decision is
// refused until the gate lists it, too.
func (w *waiting) seen() string {
	if w.Pending == nil {
		return w.Seen()
	}
	return view.Seen(w.ID, w.Pending.Revision, w.Pending.Change)
}
