package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
	"github.com/sluice-gitops/sluice/internal/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// simulateGates is `sluice simulate gates`.
type simulateGates struct {
	*env
	time          string
	allNamespaces bool
}

func newSimulateCommand(e *env) *cobra.Command {
	c := newGroup("simulate", "Show what would happen at a given time, and change nothing",
		"  sluice simulate gates --at 2026-12-24T12:00:00Z -A")
	s := &simulateGates{env: e}
	sub := &cobra.Command{
		Use: "gates", Aliases: []string{"gate"},
		Short: "Show what gates would hold at a given time", Args: noArgs,
		Long: `Show for every object with gates whether a change would pass at a given time.

Schedules, requests and their windows are evaluated for that time. Approvals,
checks and waiting objects are assumed to stay as they are now.`,
		Example: "  sluice simulate gates --at 2026-12-24T12:00:00Z\n" +
			"  sluice simulate gates --at 2026-12-24T12:00:00+01:00 -A",
		RunE: e.bounded(func(ctx context.Context, _ []string) error { return s.run(ctx) }),
	}
	sub.Flags().StringVar(&s.time, "at", "", "time in RFC 3339 format, such as 2026-12-24T12:00:00Z")
	sub.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "objects in all namespaces")
	c.AddCommand(sub)
	return c
}

func (s *simulateGates) run(ctx context.Context) error {
	if err := require("at", s.time); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, s.time)
	if err != nil {
		return usagef("invalid --at %q: use RFC 3339, such as 2026-12-24T12:00:00Z", s.time)
	}
	c, err := s.Client()
	if err != nil {
		return err
	}
	q, err := newQuery(s.Namespace(), kind.All(), nil, getOptions{allNamespaces: s.allNamespaces})
	if err != nil {
		return err
	}
	found, err := q.run(ctx, c)
	if err != nil {
		return err
	}
	simulation := forecast.NewSimulation(c, at)
	rows := [][]term.Cell{term.Row("OBJECT", "THEN", "WAITING", "WHY")}
	passing := 0
	for _, f := range found {
		o, ok := f.object.(reconcile.Gated)
		if !ok || len(forecast.GatesOf(o)) == 0 {
			continue
		}
		reasons, err := heldReasons(ctx, simulation, o)
		if err != nil {
			return cluster.WithHint(err)
		}
		if len(reasons) == 0 {
			passing++
		}
		rows = append(rows, simulationRow(f.kind, o, reasons))
	}
	if len(rows) == 1 {
		s.Step("no objects with gates found; use -A for all namespaces")
		return nil
	}
	if err := term.NewTable(s.Out).Print(rows...); err != nil {
		return err
	}
	s.Step("%d of %d objects would pass at %s, if approvals, checks and waiting objects stay as they are now",
		passing, len(rows)-1, at.Format(time.RFC3339))
	return nil
}

// heldReasons returns why gates would hold an object. An object whose author may not use a gate is held at any time.
func heldReasons(ctx context.Context, s *forecast.Simulation, o reconcile.Gated) ([]string, error) {
	if c := cluster.HeldCondition(o); c != nil && c.Reason == meta.AccessDeniedReason {
		return []string{c.Message}, nil
	}
	return s.HeldBy(ctx, o)
}

func simulationRow(k *kind.Kind, o reconcile.Gated, reasons []string) []term.Cell {
	revision := "-"
	if p := o.Held().Pending; p != nil {
		revision = cmp.Or(kind.ShortRevision(term.OneLine(p.Revision)), "-")
	}
	then, why := term.Cell{Text: "held", Colour: term.Red}, term.OneLine(strings.Join(reasons, "; "))
	if len(reasons) == 0 {
		then, why = term.Cell{Text: "passes", Colour: term.Green}, "-"
	}
	object := fmt.Sprintf("%s/%s/%s", k.Name(), o.GetNamespace(), o.GetName())
	return []term.Cell{{Text: object}, then, {Text: revision}, {Text: why}}
}
