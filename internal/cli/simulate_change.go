package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/preview"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/gate/decision"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
)

// changeDecisions is what gates would decide about a change of a repository.
type changeDecisions struct {
	From    string          `json:"from"`
	To      string          `json:"to"`
	At      time.Time       `json:"at"`
	Objects []*askingObject `json:"objects"`
	Notes   []string        `json:"notes,omitempty"`
}

// askingObject is an object that asks its gates before it takes the change.
type askingObject struct {
	Kind      string              `json:"kind"`
	Namespace string              `json:"namespace"`
	Name      string              `json:"name"`
	Risk      string              `json:"risk,omitempty"` // by the built-in rules, as gates see it
	Note      string              `json:"note,omitempty"`
	Error     string              `json:"error,omitempty"` // why the change could not be computed
	Gates     []forecast.Decision `json:"gates"`
}

func (o *askingObject) passes() bool {
	for _, d := range o.Gates {
		if !d.Passes {
			return false
		}
	}
	return true
}

// runChange shows what gates would decide about a change.
func (s *simulateGates) runChange(ctx context.Context, args []string, at time.Time) error {
	o, done, err := s.repository.options(ctx, args)
	defer done()
	if err != nil {
		return err
	}
	if o.Rules, err = o.From.Rules(); err != nil {
		return err
	}
	if o.Cluster, err = s.previewCluster(); err != nil {
		return err
	}
	defer o.Cluster.Close()
	s.Live("previewing %s", o.To.Name)
	result, err := preview.Run(ctx, o)
	s.Clear()
	if err != nil {
		return err
	}
	decisions, err := decisionsAbout(ctx, forecast.NewSimulation(o.Cluster.Client, at), result, at)
	if err != nil {
		return cluster.WithHint(err)
	}
	if s.output != "" {
		err = s.printAs(s.output, decisions)
	} else {
		err = s.printDecisions(decisions)
	}
	if err != nil {
		return err
	}
	return s.verdict(decisions)
}

// decisionsAbout returns what gates would decide about a previewed change.
func decisionsAbout(ctx context.Context, s *forecast.Simulation, r *preview.Result, at time.Time) (*changeDecisions,
	error) {

	decisions := &changeDecisions{From: r.From, To: r.To, At: at, Objects: []*askingObject{}, Notes: r.Notes}
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

func decisionsOf(ctx context.Context, s *forecast.Simulation, a preview.Asker) (*askingObject, error) {
	out := &askingObject{Kind: a.Kind, Namespace: a.Object.GetNamespace(), Name: a.Object.GetName()}
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

func (s *simulateGates) printDecisions(d *changeDecisions) error {
	for _, n := range d.Notes {
		s.Warn("%s", shown(n))
	}
	rows := [][]term.Cell{term.Row("OBJECT", "RISK", "GATE", "DECISION", "RULE", "WHY")}
	for _, o := range d.Objects {
		object, level := fmt.Sprintf("%s/%s/%s", o.Kind, o.Namespace, o.Name), cmp.Or(o.Risk, "-")
		if o.Error != "" {
			rows = append(rows, []term.Cell{{Text: object}, {Text: level}, {Text: "-"},
				{Text: "failed", Colour: term.Red}, {Text: "-"}, {Text: shown(o.Error)}})
		} else if len(o.Gates) == 0 {
			rows = append(rows, []term.Cell{{Text: object}, {Text: level}, {Text: "-"},
				{Text: "passes", Colour: term.Green}, {Text: "-"}, {Text: "no gate applies"}})
		}
		for _, g := range o.Gates {
			rows = append(rows, []term.Cell{{Text: object}, {Text: level}, {Text: g.Gate}, decisionCell(g),
				{Text: cmp.Or(g.Rule, "-")}, {Text: cmp.Or(shown(g.Message), "-")}})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return term.NewTable(s.Out).Print(rows...)
}

// decisionCell describes a decision, such as "needs 2 approvals of group security".
func decisionCell(d forecast.Decision) term.Cell {
	if d.Passes {
		return term.Cell{Text: "passes", Colour: term.Green}
	}
	//exhaustive:enforce
	switch d.Outcome {
	case decision.OutcomeWaits:
		return term.Cell{Text: "waits for its wave", Colour: term.Yellow}
	case gatingv1.OutcomePass: // a failure holds it
	case gatingv1.OutcomeDeny:
		return term.Cell{Text: "denied", Colour: term.Red}
	case gatingv1.OutcomeApprovals:
		if d.Approvals != nil {
			return term.Cell{Text: "needs " + approvalsOf(d.Approvals), Colour: term.Yellow}
		}
	}
	return term.Cell{Text: "held", Colour: term.Red}
}

// approvalsOf describes required approvals, such as "2 approvals of group security".
func approvalsOf(a *gatingv1.Approvals) string {
	text := fmt.Sprintf("%d approvals", a.Required)
	if a.Required == 1 {
		text = "1 approval"
	}
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
	return shown(text)
}

// verdict returns the result as the exit code says it.
func (s *simulateGates) verdict(d *changeDecisions) error {
	held, failed := 0, 0
	for _, o := range d.Objects {
		switch {
		case o.Error != "":
			failed++
		case !o.passes():
			held++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("the change of %d of %d objects could not be computed", failed, len(d.Objects))
	case held > 0:
		return differencef("gates would hold the change at %d of %d objects", held, len(d.Objects))
	}
	s.Done("no gate would hold the change")
	return nil
}
