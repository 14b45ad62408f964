package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// gateStatus is `sluice gate status`.
type gateStatus struct {
	*env
	diff bool
}

func newGateStatusCommand(e *env) *cobra.Command {
	s := &gateStatus{env: e}
	c := newOneGateCommand(e, &cobra.Command{
		Use: "status NAME", Short: "Show the state of a gate, its calendar, and the objects that wait",
		Example: "  sluice gate status release\n  sluice gate status release --diff\n" +
			"  sluice gate status --clusters --hub https://hub.example.com",
	}, s.run)
	s.addInbox(c)
	c.Flags().BoolVar(&s.diff, "diff", false, "list the objects that the waiting revisions would change")
	return c
}

// addInbox adds the list of what waits at the gates of all clusters of a hub.
func (s *gateStatus) addInbox(c *cobra.Command) {
	var hub hubOptions
	var clusters bool
	var output string
	one := c.RunE
	c.Args = func(cmd *cobra.Command, args []string) error {
		if clusters {
			return noArgs(cmd, args)
		}
		return exactlyOne(cmd, args)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := optionalOneOf("output", output, machineFormats...); err != nil {
			return err
		}
		if clusters {
			return printInbox(cmd.Context(), s.env, hub, output)
		}
		if output != "" {
			return usagef("--output needs --clusters")
		}
		return one(cmd, args)
	}
	c.Flags().BoolVar(&clusters, "clusters", false, "list the changes that wait at the gates of all clusters of --hub")
	hub.bind(c.Flags())
	addOutput(c, c.Flags(), &output, machineFormats...)
}

func (s *gateStatus) run(ctx context.Context, c client.Client, g *gatingv1.Gate) error {
	s.printState(g)
	s.printApprovals(g)
	if err := printCalendar(s.env, g, time.Now()); err != nil {
		return err
	}
	s.printWaiting(ctx, c, g)
	return nil
}

func (s *gateStatus) printState(g *gatingv1.Gate) {
	fmt.Fprintf(s.Out, "Opened: %s\n", kind.GateState(g))
	if w := g.Status.Why; w != nil {
		fmt.Fprintf(s.Out, "Why: %s: %s\n", w.Reason, term.OneLine(w.Message))
	}
	if r := cluster.ReadyCondition(g); r != nil && r.Status != metav1.ConditionTrue {
		fmt.Fprintf(s.Out, "Problem: %s: %s\n", r.Reason, term.OneLine(r.Message))
	}
	if g.Status.ObservedGeneration != g.Generation {
		fmt.Fprintln(s.Out, "Problem: the controller has not seen the current spec of the gate. It lets "+
			"nothing through until then")
	}
	if n := g.Status.NextTransition; n != nil {
		fmt.Fprintf(s.Out, "Next: %s at %s\n", n.State, kind.Time(n.At))
	}
	for _, c := range g.Status.Checks {
		fmt.Fprintf(s.Out, "Check: %s holds=%t %s\n", c.Name, c.Holds, term.OneLine(c.Message))
	}
	for _, w := range g.Status.Waves {
		fmt.Fprintf(s.Out, "Waves: %s of %s: %s\n", w.Kind, term.OneLine(w.Source), term.OneLine(w.Message))
	}
}

func (s *gateStatus) printApprovals(g *gatingv1.Gate) {
	valid := 0
	for _, p := range g.Status.Approvals {
		if p.Counts {
			valid++
		}
	}
	if rule := g.Spec.Approvals; rule != nil {
		fmt.Fprintf(s.Out, "Approvals: %d of %d required\n", valid, rule.Required)
	}
	for _, p := range g.Status.Approvals {
		fmt.Fprintf(s.Out, "Approval: %s by %s counts=%t %s\n", p.Name, term.OneLine(p.User), p.Counts,
			term.OneLine(p.Revision+" "+p.Message))
	}
}

// printWaiting prints the objects that wait, and with --diff what they would change.
func (s *gateStatus) printWaiting(ctx context.Context, c client.Client, g *gatingv1.Gate) {
	fmt.Fprintf(s.Out, "Waiting: %d%s\n", g.Status.WaitingCount, whyWaiting(g))
	for _, w := range g.Status.Waiting {
		changes := ""
		if w.Created != nil || w.Configured != nil || w.Deleted != nil {
			changes = fmt.Sprintf(" (%d created, %d configured, %d deleted)", ptr.Deref(w.Created, 0),
				ptr.Deref(w.Configured, 0), ptr.Deref(w.Deleted, 0))
		}
		if w.Risk != "" {
			changes += ", risk " + w.Risk
		}
		fmt.Fprintf(s.Out, "  %s/%s/%s %s%s\n", w.Kind, w.Namespace, w.Name, term.OneLine(w.Revision), changes)
		s.printRule(g, &w)
		if k := kind.ByName(w.Kind); s.diff && k != nil {
			s.printPending(ctx, c, k, types.NamespacedName{Namespace: w.Namespace, Name: w.Name})
		}
	}
	if more := g.Status.WaitingCount - int64(len(g.Status.Waiting)); more > 0 {
		fmt.Fprintf(s.Out, "  and %d more\n", more)
	}
}

// whyWaiting explains why objects wait at a gate that is open.
func whyWaiting(g *gatingv1.Gate) string {
	if !isOpen(g) || g.Status.WaitingCount == 0 {
		return ""
	}
	reason := "they have not been reconciled since it opened"
	switch {
	case slices.ContainsFunc(g.Status.Waiting, func(w gatingv1.WaitingObject) bool { return w.Message != "" }):
		reason = "its rules hold their changes"
	case len(g.Status.ApprovedRevisions) > 0:
		reason = "it lets only these revisions through: " + strings.Join(g.Status.ApprovedRevisions, ", ")
	case len(g.Status.Waves) > 0:
		reason = "their waves have not started"
	case len(g.Status.Failures) > 0:
		reason = "it refuses revisions that failed, or that people refused"
	}
	return ", although the gate is open: " + reason
}

// printRule prints which rule holds a waiting change, and how to let it through.
func (s *gateStatus) printRule(g *gatingv1.Gate, w *gatingv1.WaitingObject) {
	if w.Message == "" {
		return
	}
	fmt.Fprintf(s.Out, "    %s\n", term.OneLine(w.Message))
	if w.Change != "" {
		fmt.Fprintf(s.Out, "    change %s\n", term.OneLine(w.Change))
	}
	outcome := gatingv1.Outcome("")
	for _, r := range g.Spec.Rules {
		if r.Name == w.Rule {
			outcome = r.Outcome
		}
	}
	//exhaustive:enforce
	switch outcome {
	case gatingv1.OutcomePass:
	case gatingv1.OutcomeApprovals:
		if w.Change != "" {
			fmt.Fprintf(s.Out, "    to approve it, run: sluice gate approve %s -n %s --change %s\n", g.Name,
				g.Namespace, term.OneLine(w.Change))
		}
	case gatingv1.OutcomeDeny:
		fmt.Fprintln(s.Out, "    to let it through, push a commit that the rule does not deny, or override the gate")
	}
}

// printPending prints what a waiting object would change, as its controller recorded it: the objects, and the first
// changed lines, with secrets masked.
func (s *gateStatus) printPending(ctx context.Context, c client.Client, k *kind.Kind, key types.NamespacedName) {
	obj, err := cluster.Get(ctx, c, k, key)
	if err != nil {
		fmt.Fprintf(s.Out, "    %s\n", term.OneLine(err.Error()))
		return
	}
	gated, isGated := obj.(reconcile.Gated)
	if !isGated {
		return
	}
	p := gated.Held().Pending
	if p == nil {
		fmt.Fprintln(s.Out, "    no longer waiting")
		return
	}
	for _, line := range p.Changes {
		fmt.Fprintf(s.Out, "    %s\n", term.OneLine(line))
	}
	if more := int(p.Created+p.Configured+p.Deleted) - len(p.Changes); more > 0 {
		fmt.Fprintf(s.Out, "    and %d more\n", more)
	}
	if p.Message != "" {
		fmt.Fprintf(s.Out, "    %s\n", term.OneLine(p.Message))
	}
	if p.Diff == "" {
		return
	}
	for line := range strings.SplitSeq(p.Diff, "\n") {
		fmt.Fprintf(s.Out, "      %s\n", term.Printable(line))
	}
}

func newGateHistoryCommand(e *env) *cobra.Command {
	return newOneGateCommand(e, &cobra.Command{
		Use: "history NAME", Short: "Show when and why a gate opened and closed, newest first",
		Example: "  sluice gate history release",
	}, func(_ context.Context, _ client.Client, g *gatingv1.Gate) error {
		rows := [][]term.Cell{term.Row("AT", "STATE", "BY", "FROM", "WHY")}
		for _, h := range g.Status.History {
			rows = append(rows, term.Row(kind.Time(h.At), string(h.State), cmp.Or(term.OneLine(h.By), "-"),
				cmp.Or(term.OneLine(h.From), "-"), term.OneLine(h.Message)))
		}
		return term.NewTable(e.Out).Print(rows...)
	})
}

// newOneGateCommand completes a command that reads one gate.
func newOneGateCommand(e *env, c *cobra.Command,
	run func(context.Context, client.Client, *gatingv1.Gate) error) *cobra.Command {
	c.Args = exactlyOne
	c.RunE = e.bounded(func(ctx context.Context, args []string) error {
		cl, err := e.Client()
		if err != nil {
			return err
		}
		g, err := getGate(ctx, e, cl, args[0])
		if err != nil {
			return err
		}
		return run(ctx, cl, g)
	})
	return c
}
