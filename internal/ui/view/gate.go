package view

import (
	"cmp"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of the record of a Gate.
const (
	maxRules     = 50
	maxApprovers = 50 // users, and groups, of one rule
	maxChecks    = 50
	maxFailures  = 10 // of a gate, newest first
)

// Gate is what lists show of a Gate in addition.
type Gate struct {
	Open      bool       `json:"open"`
	Until     time.Time  `json:"until,omitzero"`
	Reason    string     `json:"reason,omitempty"` // of its state, such as CheckFailed
	Why       string     `json:"why,omitempty"`
	Count     int64      `json:"count"`    // objects that wait
	Required  int32      `json:"required"` // approvals
	Approved  int32      `json:"approved"`
	Approvals []Approval `json:"approvals,omitempty"` // that the gate knows, the first of them
	Waiting   []Waiter   `json:"waiting,omitempty"`   // the first of them
	Rules     []Rule     `json:"rules,omitempty"`     // who may approve the gate first, then its rules about changes
	Checks    []Check    `json:"checks,omitempty"`
	Failures  []Failure  `json:"failures,omitempty"` // newest first
	Waves     []Wave     `json:"waves,omitempty"`    // how far the revision of each source has come
	// OnFailure is what happens if a change becomes unhealthy within Soak: Hold or Revert; empty if nothing happens.
	OnFailure string `json:"onFailure,omitempty"`
	Soak      string `json:"soak,omitempty"`
	// Revisions are the only ones that the open gate allows; all if there are none.
	Revisions []string `json:"revisions,omitempty"`
}

// Check is a check of a gate. A check of revisions says which one it allows, and which one soaks until when.
type Check struct {
	Name       string    `json:"name"`
	Holds      bool      `json:"holds"`
	Message    string    `json:"message,omitempty"`
	By         string    `json:"by,omitempty"` // whose revisions it allows
	Soaks      string    `json:"soaks,omitempty"`
	Until      time.Time `json:"until,omitzero"`
	Promoted   string    `json:"promoted,omitempty"`
	PromotedAt time.Time `json:"promotedAt,omitzero"`
}

// Wave is how far the revision of a source has come through the waves of a gate.
type Wave struct {
	Source   string    `json:"source"` // ID, and the name of the chart if the source has several
	Revision string    `json:"revision"`
	Name     string    `json:"name,omitempty"` // of the wave in progress; empty for the objects that no wave selects
	Complete bool      `json:"complete"`
	Message  string    `json:"message,omitempty"`
	Until    time.Time `json:"until,omitzero"` // end of the soak
}

// Failure is a change that a gate let through and that became unhealthy.
type Failure struct {
	Revision   string    `json:"revision"`
	Message    string    `json:"message"`
	Since      time.Time `json:"since,omitzero"`
	ResolvedAt time.Time `json:"resolvedAt,omitzero"` // since when the objects are healthy again
	Objects    []string  `json:"objects,omitempty"`   // IDs
	RefusedBy  string    `json:"refusedBy,omitempty"` // the person who refused it; empty if it failed
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

// Approval is a GateApproval as the gate observed it.
type Approval struct {
	Name     string    `json:"name"`
	User     string    `json:"user"`
	At       time.Time `json:"at"`
	Revision string    `json:"revision,omitempty"` // empty for any
	Counts   bool      `json:"counts"`
	Message  string    `json:"message,omitempty"` // why it does not count
}

// Waiter is an object that waits at a gate.
type Waiter struct {
	ID       string    `json:"id"`
	Revision string    `json:"revision"`
	Since    time.Time `json:"since,omitzero"`
	Risk     string    `json:"risk,omitempty"`
	Change   string    `json:"change,omitempty"`  // digest of the change
	Rule     string    `json:"rule,omitempty"`    // of the gate, that holds the change
	Message  string    `json:"message,omitempty"` // why the rules hold it
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

// SeenObject returns the ID of the object in what [Seen] returned.
func SeenObject(seen string) string {
	id, _, _ := strings.Cut(seen, "@") // names contain no @
	return id
}

// WaiterOf returns the record of an object that waits at a gate.
func WaiterOf(o gatingv1.WaitingObject) Waiter {
	w := Waiter{ID: ID(o.Kind, o.Namespace, o.Name), Revision: excerpt.Bytes(o.Revision, maxRevision),
		Risk: excerpt.Bytes(o.Risk, maxText), Change: excerpt.Bytes(o.Change, maxText),
		Rule: excerpt.Bytes(o.Rule, maxText), Message: excerpt.Bytes(o.Message, maxMessage)}
	if o.Since != nil {
		w.Since = o.Since.Time
	}
	return w
}

// WaiterFrom returns the record of an object with a change that waits, for a gate that does not list it.
func WaiterFrom(i *Item) Waiter {
	return Waiter{ID: i.ID, Revision: i.Pending, Since: i.PendingSince, Risk: i.Risk, Change: i.Change}
}

// gateOf returns what lists show of a Gate.
func gateOf(o *gatingv1.Gate) *Gate {
	g := &Gate{Open: apimeta.IsStatusConditionTrue(o.Status.Conditions, gatingv1.OpenedCondition),
		Count: o.Status.WaitingCount}
	if n := o.Status.NextTransition; n != nil {
		g.Until = n.At.Time
	}
	if w := o.Status.Why; w != nil {
		g.Reason, g.Why = excerpt.Bytes(w.Reason, maxText), excerpt.Bytes(w.Message, maxMessage)
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
		if len(g.Approvals) < maxApprovers {
			g.Approvals = append(g.Approvals, Approval{Name: excerpt.Bytes(a.Name, maxText),
				User: excerpt.Bytes(a.User, maxText), At: a.At.Time, Revision: excerpt.Bytes(a.Revision, maxRevision),
				Counts: a.Counts, Message: excerpt.Bytes(a.Message, maxMessage)})
		}
	}
	for _, w := range o.Status.Waiting[:min(len(o.Status.Waiting), maxWaiting)] {
		g.Waiting = append(g.Waiting, WaiterOf(w))
	}
	for _, r := range o.Status.ApprovedRevisions[:min(len(o.Status.ApprovedRevisions), maxRules)] {
		g.Revisions = append(g.Revisions, excerpt.Bytes(r, maxRevision))
	}
	g.setChecks(o)
	g.setWaves(o)
	if o.Spec.OnFailure != "" {
		g.OnFailure, g.Soak = string(o.Spec.OnFailure), o.GetSoak().String()
	}
	for _, f := range o.Status.Failures[:min(len(o.Status.Failures), maxFailures)] {
		g.Failures = append(g.Failures, failureOf(f))
	}
	return g
}

// setChecks records the results of checks.
func (g *Gate) setChecks(o *gatingv1.Gate) {
	for _, r := range o.Status.Checks[:min(len(o.Status.Checks), maxChecks)] {
		c := Check{Name: excerpt.Bytes(r.Name, maxText), Holds: r.Holds, Message: excerpt.Bytes(r.Message, maxMessage)}
		if v := r.Revision; v != nil {
			c.By = promoterOf(o, r.Name)
			c.Promoted = excerpt.Bytes(v.Promoted, maxRevision)
			if v.PromotedAt != nil {
				c.PromotedAt = v.PromotedAt.Time
			}
			if v.Until != nil && v.Ready != v.Promoted {
				c.Soaks, c.Until = excerpt.Bytes(v.Ready, maxRevision), v.Until.Time
			}
		}
		g.Checks = append(g.Checks, c)
	}
}

// setWaves records how far revisions have come, those in progress first.
func (g *Gate) setWaves(o *gatingv1.Gate) {
	for _, isComplete := range []bool{false, true} {
		for _, p := range o.Status.Waves {
			if p.Complete != isComplete || len(g.Waves) == maxChecks {
				continue
			}
			w := Wave{Source: excerpt.Bytes(p.Source, maxText), Revision: excerpt.Bytes(p.Revision, maxRevision),
				Name: excerpt.Bytes(p.Wave, maxText), Complete: p.Complete,
				Message: excerpt.Bytes(p.Message, maxMessage)}
			if p.Until != nil {
				w.Until = p.Until.Time
			}
			g.Waves = append(g.Waves, w)
		}
	}
}

// promoterOf names the objects whose revisions a check allows.
func promoterOf(o *gatingv1.Gate, check string) string {
	for _, c := range o.Spec.Checks {
		switch {
		case c.Name != check || c.Revision == nil:
		case c.Revision.Name == "":
			return string(c.Revision.Kind) + " objects with the labels of the check"
		default:
			return excerpt.Bytes(ID(string(c.Revision.Kind), cmp.Or(c.Revision.Namespace, o.Namespace),
				c.Revision.Name), maxText)
		}
	}
	return ""
}

func failureOf(f gatingv1.FailedChange) Failure {
	out := Failure{Revision: excerpt.Bytes(f.Revision, maxRevision), Message: excerpt.Bytes(f.Message, maxMessage),
		Since: f.Since.Time, RefusedBy: excerpt.Bytes(f.RefusedBy, maxText)}
	if f.ResolvedAt != nil {
		out.ResolvedAt = f.ResolvedAt.Time
	}
	for _, o := range f.Objects[:min(len(f.Objects), gatingv1.MaxFailedObjects)] {
		out.Objects = append(out.Objects, excerpt.Bytes(ID(o.Kind, o.Namespace, o.Name), maxText))
	}
	return out
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
