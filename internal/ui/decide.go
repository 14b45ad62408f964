package ui

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// decision is what a user decides about what waits at a gate.
type decision struct {
	*Server
	user   *User
	gate   *gatingv1.Gate
	body   order
	seen   map[string]bool
	listed []view.Waiter // that the gate lists
	others []view.Waiter // that wait beyond those, as far as the user may see them
}

func (s *Server) newDecision(ctx context.Context, u *User, g *gatingv1.Gate, body order) (*decision, error) {
	if len(body.Seen) > maxWaiting+gatingv1.MaxWaiting {
		return nil, badRequest("a decision is about at most %d changes that wait, %d were sent. Limit it to one "+
			"revision, or use sluice gate approve", maxWaiting+gatingv1.MaxWaiting, len(body.Seen))
	}
	d := &decision{Server: s, user: u, gate: g, body: body, seen: make(map[string]bool, len(body.Seen))}
	for _, text := range body.Seen {
		d.seen[text] = true
	}
	for _, w := range g.Status.Waiting {
		d.listed = append(d.listed, view.WaiterOf(w))
	}
	if g.Status.WaitingCount <= int64(len(d.listed)) {
		return d, nil
	}
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	id := view.ID(gatingv1.GateKind, g.Namespace, g.Name)
	for _, i := range s.newReader(u, may).others(id, &view.Gate{Count: g.Status.WaitingCount, Waiting: d.listed}) {
		d.others = append(d.others, view.WaiterFrom(i))
	}
	return d, nil
}

// check refuses a decision if what waits at the gate is not what the user saw. Of changes that the gate does not list,
// it refuses those that differ from what the user saw of the same object: the others are not named by an approval.
func (d *decision) check() error {
	current := []string{}
	shown := map[string]bool{} // objects
	for _, text := range d.body.Seen {
		shown[view.SeenObject(text)] = true
	}
	changed := false
	for _, w := range d.listed {
		changed = changed || !d.seen[w.Seen()]
		current = append(current, w.Seen())
	}
	for _, w := range d.others {
		if shown[w.ID] {
			changed = changed || !d.seen[w.Seen()]
			current = append(current, w.Seen())
		}
	}
	if !changed {
		return nil
	}
	return &changedSince{failure: failure{Error: "what waits at this gate has changed since it was shown: look at it " +
		"again, then decide"}, Current: current}
}

// actOnGate opens, closes, overrides or approves a gate, and records in the answer what an approval names.
func (s *Server) actOnGate(ctx context.Context, u *User, g *gatingv1.Gate, body order, answer *done) error {
	action := answer.Done
	d, err := s.newDecision(ctx, u, g, body)
	if err == nil && action != actClose { // closing needs no check
		err = d.check()
	}
	if err != nil {
		return err
	}
	window := time.Duration(0)
	if body.For != "" {
		if window, err = time.ParseDuration(body.For); err != nil || window <= 0 || window > maxWindow {
			return badRequest("%q is not a duration such as 30m or 2h, of at most %s", excerpt.Bytes(body.For, 50),
				maxWindow)
		}
	}
	if action == actApprove {
		return d.approve(ctx, window, answer)
	}
	if action == actOverride && body.Reason == "" {
		return badRequest("an override needs a reason: it is recorded in the history of the gate")
	}
	prefix := map[string]string{actOpen: gatingv1.OpenPrefix, actClose: gatingv1.ClosePrefix,
		actOverride: gatingv1.OverridePrefix}[action]
	before := g.DeepCopy()
	request.Request{Prefix: prefix, User: u.Name, Window: window, Revision: body.Revision,
		Reason: body.Reason}.Annotate(g, s.Now())
	return u.Client.Patch(ctx, g, client.MergeFrom(before), fieldOwner)
}

// approve creates as many GateApprovals as name all changes that the user saw.
func (d *decision) approve(ctx context.Context, window time.Duration, answer *done) error {
	if d.body.Groups == nil {
		d.body.Groups = request.ApprovingGroups(d.gate, d.user.Groups)
	}
	if err := request.CheckApprover(d.gate, d.user.Name, d.body.Groups); err != nil {
		return badRequest("%s", err)
	}
	approvals, err := request.Approval{User: d.user.Name, Groups: d.body.Groups, Revision: d.body.Revision,
		Comment: d.body.Reason, Expires: window, Changes: d.changes()}.Objects(d.gate, d.Now())
	if err != nil {
		return badRequest("%s", err)
	}
	for _, approval := range approvals {
		if err := d.user.Client.Create(ctx, approval, fieldOwner); err != nil {
			if answer.Approvals > 0 {
				err = fmt.Errorf("%d of %d GateApprovals were created, which name %d changes: %w", answer.Approvals,
					len(approvals), answer.Changes, err)
			}
			return err
		}
		answer.Approvals++
		answer.Changes += len(approval.Spec.Changes)
	}
	if answer.Changes > 0 {
		answer.Left = max(0, d.gate.Status.WaitingCount-int64(answer.Changes))
	}
	return nil
}

// changes returns the changes to approve if more wait than the gate lists: those that the user saw.
func (d *decision) changes() []string {
	if len(d.others) == 0 || !request.RequiresChanges(d.gate) {
		return nil
	}
	var changes []string
	for _, w := range slices.Concat(d.listed, d.others) {
		if w.Change != "" && d.seen[w.Seen()] && request.IsOf(w.Revision, d.body.Revision) {
			changes = append(changes, w.Change)
		}
	}
	return changes
}
