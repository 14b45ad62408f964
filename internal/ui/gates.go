package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of what is shown of changes that wait.
const (
	maxPendingRead = 100  // waiting objects that are read with their changes
	maxWaiting     = 1000 // changes at gates that are listed, and that one decision can name
)

// gateEntry is a gate with the changes that wait.
type gateEntry struct {
	Item    *view.Item `json:"item"`
	Seen    []string   `json:"seen"` // to send with a decision
	Waiting []waiting  `json:"waiting"`
	Omitted int64      `json:"omitted"` // objects that wait and are not listed, or that the user may not see
	// MayNot is why an approval by the user would change nothing; empty if it may count.
	MayNot string `json:"mayNot,omitempty"`
}

// waiting is an object at a gate, with what would change.
type waiting struct {
	view.Waiter
	Why     string        `json:"why,omitempty"` // what holds the change, such as a rule of the gate
	Pending *meta.Pending `json:"pending,omitempty"`
	Error   string        `json:"error,omitempty"` // why the change cannot be shown
}

// gates returns the inbox: all gates with the changes that wait, first those where something waits for the user, then
// those where something waits.
func (s *Server) gates(ctx context.Context, u *User, _ *http.Request) (any, error) {
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	items := s.Model.List(func(i *view.Item) bool { return i.Gate != nil && may(i) })
	slices.SortStableFunc(items, func(a, b *view.Item) int { return cmp.Compare(b.Gate.Count, a.Gate.Count) })
	entries := []gateEntry{}
	r := s.newReader(u, may)
	for _, i := range items {
		entries = append(entries, r.entry(ctx, i))
	}
	slices.SortStableFunc(entries, func(a, b gateEntry) int { return cmp.Compare(a.rank(), b.rank()) })
	return map[string]any{"kind": gatingv1.GateKind, "gates": entries}, nil
}

// rank is lowest for what waits for an approval of the user, then for what waits for others.
func (e *gateEntry) rank() int {
	switch {
	case e.Item.Gate.Count > 0 && e.MayNot == "":
		return 0
	case e.Item.Gate.Count > 0:
		return 1
	}
	return 2
}

// pendingReader reads what waits at gates, within bounds for all of them.
type pendingReader struct {
	*Server
	user   *User
	may    view.Filter
	reads  int                     // objects that may still be read
	lists  int                     // objects beyond those that gates list that may still be listed
	byGate map[string][]*view.Item // objects with changes that wait, by the ID of their gates; nil: not known yet
}

func (s *Server) newReader(u *User, may view.Filter) *pendingReader {
	return &pendingReader{Server: s, user: u, may: may, reads: maxPendingRead, lists: maxWaiting}
}

// entry returns a gate with the changes that wait: first those that its status lists.
func (p *pendingReader) entry(ctx context.Context, i *view.Item) gateEntry {
	e := gateEntry{Item: i, Seen: []string{}, Waiting: []waiting{}, MayNot: mayNotApprove(p.user, i.Gate)}
	add := func(w view.Waiter, why string) {
		entry := waiting{Waiter: w, Why: why}
		if p.reads > 0 {
			p.reads--
			entry.read(ctx, p.user, p.Model.Get(w.ID, p.may))
		}
		e.Seen = append(e.Seen, entry.seen())
		e.Waiting = append(e.Waiting, entry)
	}
	for _, w := range i.Gate.Waiting {
		add(w, "")
	}
	for _, o := range p.others(i.ID, i.Gate) {
		if p.lists--; p.lists < 0 {
			break
		}
		add(view.WaiterFrom(o), o.Held)
	}
	e.Omitted = max(0, i.Gate.Count-int64(len(e.Waiting)))
	if e.MayNot == "" {
		e.MayNot = p.approved(ctx, i, e.Waiting)
	}
	return e
}

// approved returns that the user approved all that waits already, with the reason; empty if a further approval may
// count.
func (p *pendingReader) approved(ctx context.Context, i *view.Item, all []waiting) string {
	var own []*gatingv1.GateApproval
	for _, a := range i.Gate.Approvals {
		if !a.Counts || a.User != p.user.Name || p.reads <= 0 {
			continue
		}
		p.reads--
		o := &gatingv1.GateApproval{}
		if p.user.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: a.Name}, o) == nil {
			own = append(own, o)
		}
	}
	if len(own) == 0 {
		return ""
	}
	for _, w := range all {
		if !slices.ContainsFunc(own, func(a *gatingv1.GateApproval) bool { return covers(a, &w) }) {
			return ""
		}
	}
	last := own[len(own)-1].Spec
	text := "you approved already"
	if last.Comment != "" {
		text += fmt.Sprintf(" (%q)", excerpt.Bytes(last.Comment, maxReason))
	}
	if missing := i.Gate.Required - i.Gate.Approved; missing > 0 {
		text += fmt.Sprintf("; %d more of others needed", missing)
	}
	return text
}

// covers reports whether an approval is for a change that waits.
func covers(a *gatingv1.GateApproval, w *waiting) bool {
	change := w.Change
	if w.Pending != nil {
		change = w.Pending.Change
	}
	return request.IsOf(w.Revision, a.Spec.Revision) &&
		(len(a.Spec.Changes) == 0 || slices.Contains(a.Spec.Changes, change))
}

// mayNotApprove returns why an approval by a user would change nothing at a gate. The server decides it again by the
// gate itself, whose lists of approvers are not cut.
func mayNotApprove(u *User, g *view.Gate) string {
	asks := false
	for _, r := range g.Rules {
		if r.Required == 0 {
			continue
		}
		asks = true
		if len(r.Users)+len(r.Groups)+r.Omitted == 0 || r.Omitted > 0 || slices.Contains(r.Users, u.Name) ||
			slices.ContainsFunc(u.Groups, func(name string) bool { return slices.Contains(r.Groups, name) }) {
			return ""
		}
	}
	switch {
	case asks:
		return "you are not an approver of this gate"
	case g.OnFailure != "":
		return "" // an approval of a failed revision lets it through
	}
	return "this gate requires no approvals: open it"
}

// others returns the objects that wait at a gate beyond those that its status lists, by ID.
func (p *pendingReader) others(id string, g *view.Gate) []*view.Item {
	if g.Count <= int64(len(g.Waiting)) {
		return nil
	}
	if p.byGate == nil {
		p.byGate = map[string][]*view.Item{}
		for _, i := range p.Model.List(func(i *view.Item) bool { return i.Held != "" && p.may(i) }) {
			for _, gate := range i.HeldBy {
				p.byGate[gate] = append(p.byGate[gate], i)
			}
		}
	}
	listed := make(map[string]bool, len(g.Waiting))
	for _, w := range g.Waiting {
		listed[w.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(p.byGate[id]), func(i *view.Item) bool { return listed[i.ID] })
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
	w.Pending, w.Why = g.Held().Pending, view.HeldBecause(o)
}

// seen identifies the change that is shown. It can be newer than the one that the gate lists; then a decision is
// refused until the gate lists it, too.
func (w *waiting) seen() string {
	if w.Pending == nil {
		return w.Seen()
	}
	return view.Seen(w.ID, w.Pending.Revision, w.Pending.Change)
}
