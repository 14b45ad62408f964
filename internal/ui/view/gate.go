package view

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/excerpt"
)

// Bounds of the record of a Gate.
const (
	maxRules     = 50
	maxApprovers = 50 // users, and groups, of one rule
)

// Gate is what lists show of a Gate in addition.
type Gate struct {
	Open     bool      `json:"open"`
	Until    time.Time `json:"until,omitzero"`
	Why      string    `json:"why,omitempty"`
	Count    int64     `json:"count"`    // objects that wait
	Required int32     `json:"required"` // approvals
	Approved int32     `json:"approved"`
	Waiting  []Waiter  `json:"waiting,omitempty"` // the first of them
	Rules    []Rule    `json:"rules,omitempty"`   // who may approve the gate first, then its rules about changes
}

// Rule is what must hold at a gate: the approvals that the gate requires, or one of its rules about changes.
type Rule struct {
	Name     string   `json:"name,omitempty"`    // empty for the approvals of the gate
	Outcome  string   `json:"outcome"`           // pass, deny or approvals
	Message  string   `json:"message,omitempty"` // for people
	Required int32    `json:"required,omitempty"`
	Users    []string `json:"users,omitempty"` // who may approve; anybody if there are neither users nor groups
	Groups   []string `json:"groups,omitempty"`
	Omitted  int      `json:"omitted,omitempty"` // users and groups above the limits
}

// Waiter is an object that waits at a gate.
type Waiter struct {
	ID       string    `json:"id"`
	Revision string    `json:"revision"`
	Since    time.Time `json:"since,omitzero"`
	Risk     string    `json:"risk,omitempty"`
	Change   string    `json:"change,omitempty"` // digest of the change
}

// Seen identifies what waits, for a decision about it.
func (w Waiter) Seen() string { return Seen(w.ID, w.Revision, w.Change) }

// Seen identifies a change that waits: the object, its revision and, if it is known, the digest of the change.
func Seen(id, revision, change string) string {
	text := id + "@" + excerpt.Bytes(revision, maxRevision)
	if change != "" {
		text += "#" + change
	}
	return text
}

// WaiterOf returns the record of an object that waits at a gate.
func WaiterOf(o gatingv1.WaitingObject) Waiter {
	w := Waiter{ID: ID(o.Kind, o.Namespace, o.Name), Revision: excerpt.Bytes(o.Revision, maxRevision),
		Risk: excerpt.Bytes(o.Risk, maxText), Change: excerpt.Bytes(o.Change, maxText)}
	if o.Since != nil {
		w.Since = o.Since.Time
	}
	return w
}

// gateOf returns what lists show of a Gate.
func gateOf(o *gatingv1.Gate) *Gate {
	g := &Gate{Open: apimeta.IsStatusConditionTrue(o.Status.Conditions, gatingv1.OpenedCondition),
		Count: o.Status.WaitingCount}
	if n := o.Status.NextTransition; n != nil {
		g.Until = n.At.Time
	}
	if w := o.Status.Why; w != nil {
		g.Why = excerpt.Bytes(w.Message, maxMessage)
	}
	if a := o.Spec.Approvals; a != nil {
		g.Required = a.Required
		g.Rules = append(g.Rules, ruleOf(gatingv1.Rule{Outcome: gatingv1.OutcomeApprovals, Approvals: a}))
	}
	for _, r := range o.Spec.Rules[:min(len(o.Spec.Rules), maxRules)] {
		g.Rules = append(g.Rules, ruleOf(r))
	}
	for _, a := range o.Status.Approvals {
		if a.Counts {
			g.Approved++
		}
	}
	for _, w := range o.Status.Waiting[:min(len(o.Status.Waiting), maxWaiting)] {
		g.Waiting = append(g.Waiting, WaiterOf(w))
	}
	return g
}

func ruleOf(r gatingv1.Rule) Rule {
	out := Rule{Name: excerpt.Bytes(r.Name, maxText), Outcome: string(r.Outcome),
		Message: excerpt.Bytes(r.Message, maxMessage)}
	if a := r.Approvals; a != nil {
		out.Required = a.Required
		out.Users, out.Groups = names(a.Users), names(a.Groups)
		out.Omitted = len(a.Users) + len(a.Groups) - len(out.Users) - len(out.Groups)
	}
	return out
}

// names returns the first names of a list, shortened.
func names(all []string) []string {
	var out []string
	for _, name := range all[:min(len(all), maxApprovers)] {
		out = append(out, excerpt.Bytes(name, maxText))
	}
	return out
}
