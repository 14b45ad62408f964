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
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// simulateGates is `sluice simulate gates`.
type simulateGates struct {
	*env
	time          string
	allNamespaces bool
	change        bool // of a repository, that has not landed
	repository    changeFlags
	output        string
}

func newSimulateCommand(e *env) *cobra.Command {
	c := newGroup("simulate", "Show what gates would do, and change nothing",
		"  sluice simulate gates --at 2026-12-24T12:00:00Z -A\n  sluice simulate gates --change --to my-branch")
	s := &simulateGates{env: e}
	sub := &cobra.Command{
		Use: "gates [PULL-REQUEST-URL]", Aliases: []string{"gate"},
		Short: "Show what gates would hold at a given time, or of a change", Args: onePullRequest,
		ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Show for every object with gates whether a change would pass at a given time.

Schedules, requests and their windows are evaluated for that time. Approvals,
checks and waiting objects are assumed to stay as they are now.

With --change, show what each gate would decide about a change that has not
landed: the one between two branches of a clone, two directories, or a pull
request. The change is computed as by "sluice preview", for every Kustomization
and HelmRelease that it reaches, and decided about as by the controllers: by
the rules of the gate, or else by its state.

Exit codes with --change: 0 all gates would let the change through, 1 a gate
would hold it, 2 the change could not be computed.`,
		Example: `  sluice simulate gates --at 2026-12-24T12:00:00Z
  sluice simulate gates --at 2026-12-24T12:00:00+01:00 -A
  sluice simulate gates --change --from main --to my-branch
  sluice simulate gates --change https://github.com/acme/fleet/pull/42 -o json`,
	}
	f := sub.Flags()
	f.StringVar(&s.time, "at", "", "time in RFC 3339 format, such as 2026-12-24T12:00:00Z; with --change, default: now")
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "objects in all namespaces; --change always means all")
	f.BoolVar(&s.change, "change", false, "show what gates would decide about a change of the repository")
	s.repository.bind(e, f)
	addOutput(sub, f, &s.output, machineFormats...)
	run := e.bounded(s.run)
	sub.RunE = func(cmd *cobra.Command, args []string) error {
		if s.change {
			return comparing(run)(cmd, args)
		}
		return run(cmd, args)
	}
	c.AddCommand(sub)
	return c
}

// validate returns the time of the simulation.
func (s *simulateGates) validate(args []string) (time.Time, error) {
	if !s.change {
		for _, name := range []string{"from", "to", "clone", "from-dir", "to-dir", "source", "output"} {
			if s.repository.flags.Changed(name) {
				return time.Time{}, usagef("--%s needs --change", name)
			}
		}
		if len(args) > 0 {
			return time.Time{}, usagef("the address of a pull request needs --change")
		}
		if err := require("at", s.time); err != nil {
			return time.Time{}, err
		}
	}
	if err := s.repository.validate(); err != nil {
		return time.Time{}, err
	}
	if s.output != "" {
		if err := oneOf("output", s.output, machineFormats...); err != nil {
			return time.Time{}, err
		}
	}
	if s.time == "" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, s.time)
	if err != nil {
		return at, usagef("invalid --at %q: use RFC 3339, such as 2026-12-24T12:00:00Z", s.time)
	}
	return at, nil
}

func (s *simulateGates) run(ctx context.Context, args []string) error {
	at, err := s.validate(args)
	if err != nil {
		return err
	}
	if s.change {
		return s.runChange(ctx, args, at)
	}
	return s.runAt(ctx, at)
}

// runAt shows what gates would hold at a time.
func (s *simulateGates) runAt(ctx context.Context, at time.Time) error {
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
