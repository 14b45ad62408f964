package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

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
	decisions, err := preview.DecisionsAbout(ctx, o.Cluster.Client, result, at)
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

func (s *simulateGates) printDecisions(d *preview.Decisions) error {
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
			return term.Cell{Text: "needs " + shown(preview.Approvals(d.Approvals)), Colour: term.Yellow}
		}
	}
	return term.Cell{Text: "held", Colour: term.Red}
}

// verdict returns the result as the exit code says it.
func (s *simulateGates) verdict(d *preview.Decisions) error {
	held, failed := 0, 0
	for _, o := range d.Objects {
		switch {
		case o.Error != "":
			failed++
		case !o.Passes():
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
