package ui

import (
	"context"
	"net/http"
	"slices"

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
			e.Seen = append(e.Seen, w.ID+"@"+w.Revision)
			entry := waiting{Waiter: w}
			if reads++; reads <= maxPendingRead {
				entry.Pending, entry.Error = pendingOf(ctx, u, s.Model.Get(w.ID, may))
			}
			e.Waiting = append(e.Waiting, entry)
		}
		entries = append(entries, e)
	}
	return map[string]any{"kind": gatingv1.GateKind, "gates": entries}, nil
}

// pendingOf reads the change of an object that waits.
func pendingOf(ctx context.Context, u *User, i *view.Item) (*meta.Pending, string) {
	if i == nil {
		return nil, "you may not see this object"
	}
	o := kind.ByName(i.Kind).New()
	if err := u.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Name}, o); err != nil {
		return nil, err.Error()
	}
	if g, ok := o.(reconcile.Gated); ok {
		return g.Held().Pending, ""
	}
	return nil, ""
}
