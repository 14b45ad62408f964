package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// opened shows whether a gate is open, and until when as far as the clock decides it.
func opened(o reconcile.Object, _ bool) string {
	g := o.(*gatingv1.Gate)
	text := "Unknown"
	if c := apimeta.FindStatusCondition(g.Status.Conditions, gatingv1.OpenedCondition); c != nil {
		text = string(c.Status)
	}
	if next := g.Status.NextTransition; next != nil {
		text += " until " + next.At.UTC().Format(time.RFC3339)
	}
	return text
}

func waitingCount(o reconcile.Object, _ bool) string {
	return strconv.FormatInt(o.(*gatingv1.Gate).Status.WaitingCount, 10)
}

func (a *app) gateList() *cobra.Command {
	var o getOptions
	c := &cobra.Command{
		Use: "list", Short: "List gates", Args: noArgs, Example: "  sluice gate list -A",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd.Context(), []*kind{byTitle(gatingv1.GateKind)}, args, o)
		},
	}
	c.Flags().BoolVarP(&o.everywhere, "all-namespaces", "A", false, "in all namespaces")
	return c
}

func (a *app) gateStatus() *cobra.Command {
	return a.ofGate(&cobra.Command{
		Use: "status NAME", Short: "Show what a gate is, why, what comes next, and who waits", Example: "  sluice gate status release",
	}, func(g *gatingv1.Gate) error {
		fmt.Fprintf(a.out, "Opened: %s\n", opened(g, false))
		if w := g.Status.Why; w != nil {
			fmt.Fprintf(a.out, "Why: %s: %s\n", w.Reason, oneLine(w.Message))
		}
		if n := g.Status.NextTransition; n != nil {
			fmt.Fprintf(a.out, "Next: %s at %s\n", n.State, n.At.UTC().Format(time.RFC3339))
		}
		for _, c := range g.Status.Checks {
			fmt.Fprintf(a.out, "Check: %s holds=%t %s\n", c.Name, c.Holds, oneLine(c.Message))
		}
		for _, p := range g.Status.Approvals {
			fmt.Fprintf(a.out, "Approval: %s by %s counts=%t %s\n", p.Name, oneLine(p.User), p.Counts, oneLine(p.Message))
		}
		fmt.Fprintf(a.out, "Waiting: %d\n", g.Status.WaitingCount)
		for _, w := range g.Status.Waiting {
			fmt.Fprintf(a.out, "  %s/%s/%s %s\n", w.Kind, w.Namespace, w.Name, oneLine(w.Revision))
		}
		return nil
	})
}

func (a *app) gateHistory() *cobra.Command {
	return a.ofGate(&cobra.Command{
		Use: "history NAME", Short: "Show when a gate opened and closed, and why, the newest first", Example: "  sluice gate history release",
	}, func(g *gatingv1.Gate) error {
		rows := [][]cell{{{text: "AT"}, {text: "STATE"}, {text: "BY"}, {text: "FROM"}, {text: "WHY"}}}
		for _, h := range g.Status.History {
			rows = append(rows, []cell{
				{text: h.At.UTC().Format(time.RFC3339)}, {text: string(h.State)}, {text: cmp.Or(oneLine(h.By), "-")},
				{text: cmp.Or(oneLine(h.From), "-")}, {text: oneLine(h.Message)},
			})
		}
		return (&table{out: a.out}).print(rows...)
	})
}

// ofGate makes a command that shows one gate.
func (a *app) ofGate(c *cobra.Command, show func(*gatingv1.Gate) error) *cobra.Command {
	c.Args = exactlyOne
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
		defer cancel()
		cluster, err := a.client()
		if err != nil {
			return err
		}
		g, err := a.fetchGate(ctx, cluster, args[0])
		if err != nil {
			return err
		}
		return show(g)
	}
	return c
}
