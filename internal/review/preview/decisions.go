package preview

import (
	"context"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Decisions is what gates would decide about a change of a repository.
type Decisions struct {
	From    string          `json:"from"`
	To      string          `json:"to"`
	At      time.Time       `json:"at"`
	Objects []*AskingObject `json:"objects"`
	Notes   []string        `json:"notes,omitempty"`
}

// AskingObject is an object that asks its gates before it takes the change.
type AskingObject struct {
	Kind      string              `json:"kind"`
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Risk      string              `json:"risk,omitempty"` // by the built-in rules, as gates see it
	Note      string              `json:"note,omitempty"`
	Error     string              `json:"error,omitempty"` // why the change could not be computed
	Gates     []forecast.Decision `json:"gates"`
}

// Passes reports whether no gate would hold the object.
func (o *AskingObject) Passes() bool {
	for _, d := range o.Gates {
		if !d.Passes {
			return false
		}
	}
	return true
}

// DecisionsAbout returns what the gates of a cluster would decide about a previewed change.
func DecisionsAbout(ctx context.Context, cluster client.Reader, r *Result, at time.Time) (*Decisions, error) {
	s := forecast.NewSimulation(cluster, at)
	decisions := &Decisions{From: r.From, To: r.To, At: at, Objects: []*AskingObject{}, Notes: r.Notes}
	for _, a := range r.Askers() {
		asking, err := decisionsOf(ctx, s, a)
		if err != nil {
			return nil, err
		}
		decisions.Objects = append(decisions.Objects, asking)
	}
	if s.Partial {
		decisions.Notes = append(decisions.Notes, "you may not list all gates: those that select an object are those "+
			"that its status names")
	}
	return decisions, nil
}

func decisionsOf(ctx context.Context, s *forecast.Simulation, a Asker) (*AskingObject, error) {
	out := &AskingObject{Kind: a.Kind, Namespace: a.Object.GetNamespace(), Name: a.Object.GetName()}
	if a.Owner != nil {
		out.Note, out.Error = a.Owner.Note, a.Owner.Error
	}
	if a.Change != nil {
		out.Risk = a.Change.Level(ctx).String()
	}
	var err error
	out.Gates, err = s.Decisions(ctx, a.Kind, a.Object, a.Change)
	return out, err
}

// Approvals describes required approvals, such as "2 approvals of group security".
func Approvals(a *gatingv1.Approvals) string {
	text := excerpt.Count(int(a.Required), "approval")
	var from []string
	if len(a.Groups) > 0 {
		from = append(from, "group "+strings.Join(a.Groups, ", "))
	}
	if len(a.Users) > 0 {
		from = append(from, strings.Join(a.Users, ", "))
	}
	if len(from) > 0 {
		text += " of " + strings.Join(from, " or ")
	}
	return printable(text, " ")
}
