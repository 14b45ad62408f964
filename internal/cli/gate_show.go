package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
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
	var diff bool
	c := a.ofGate(&cobra.Command{
		Use: "status NAME", Short: "Show what a gate is, why, what the clock does to it, and who waits",
		Example: "  sluice gate status release\n  sluice gate status release --diff",
	}, func(ctx context.Context, c client.Client, g *gatingv1.Gate) error {
		fmt.Fprintf(a.out, "Opened: %s\n", opened(g, false))
		if w := g.Status.Why; w != nil {
			fmt.Fprintf(a.out, "Why: %s: %s\n", w.Reason, oneLine(w.Message))
		}
		if r := readyCondition(g); r != nil && r.Status != metav1.ConditionTrue {
			fmt.Fprintf(a.out, "Problem: %s: %s\n", r.Reason, oneLine(r.Message))
		}
		if g.Status.ObservedGeneration != g.Generation {
			fmt.Fprintln(a.out, "Problem: its controller has yet to look at the gate as it is now; until then it "+
				"lets nothing through")
		}
		if n := g.Status.NextTransition; n != nil {
			fmt.Fprintf(a.out, "Next: %s at %s\n", n.State, n.At.UTC().Format(time.RFC3339))
		}
		for _, c := range g.Status.Checks {
			fmt.Fprintf(a.out, "Check: %s holds=%t %s\n", c.Name, c.Holds, oneLine(c.Message))
		}
		a.showApprovals(g)
		if err := a.showCalendar(g, time.Now()); err != nil {
			return err
		}
		return a.showWaiting(ctx, c, g, diff)
	})
	c.Flags().BoolVar(&diff, "diff", false, "list the objects that what waits would change")
	return c
}

func (a *app) showApprovals(g *gatingv1.Gate) {
	counting := 0
	for _, p := range g.Status.Approvals {
		if p.Counts {
			counting++
		}
	}
	if rule := g.Spec.Approvals; rule != nil {
		fmt.Fprintf(a.out, "Approvals: %d count, %d required\n", counting, rule.Required)
	}
	for _, p := range g.Status.Approvals {
		fmt.Fprintf(a.out, "Approval: %s by %s counts=%t %s\n", p.Name, oneLine(p.User), p.Counts,
			oneLine(p.Revision+" "+p.Message))
	}
}

// showWaiting prints who waits with which revision, and with diff what that would change.
func (a *app) showWaiting(ctx context.Context, c client.Client, g *gatingv1.Gate, diff bool) error {
	fmt.Fprintf(a.out, "Waiting: %d\n", g.Status.WaitingCount)
	for _, w := range g.Status.Waiting {
		changes := ""
		if w.Created != nil || w.Configured != nil || w.Deleted != nil {
			changes = fmt.Sprintf(" (%d created, %d configured, %d deleted)", ptr.Deref(w.Created, 0),
				ptr.Deref(w.Configured, 0), ptr.Deref(w.Deleted, 0))
		}
		fmt.Fprintf(a.out, "  %s/%s/%s %s%s\n", w.Kind, w.Namespace, w.Name, oneLine(w.Revision), changes)
		if diff && w.Kind == kustomizev1.KustomizationKind {
			if err := a.showPending(ctx, c, types.NamespacedName{Namespace: w.Namespace, Name: w.Name}); err != nil {
				return err
			}
		}
	}
	if more := g.Status.WaitingCount - int64(len(g.Status.Waiting)); more > 0 {
		fmt.Fprintf(a.out, "  and %d more\n", more)
	}
	return nil
}

// showPending prints what a Kustomization that waits would change, as the controller found by a dry-run. The
// source's artifact is for the controllers alone, so that the lines that change are told from files.
func (a *app) showPending(ctx context.Context, c client.Client, key types.NamespacedName) error {
	obj, err := fetch(ctx, c, byTitle(kustomizev1.KustomizationKind), key)
	if err != nil {
		fmt.Fprintf(a.out, "    %s\n", oneLine(err.Error()))
		return nil
	}
	p := obj.(reconcile.Gated).Held().Pending
	if p == nil {
		fmt.Fprintln(a.out, "    it waits no longer")
		return nil
	}
	for _, line := range p.Changes {
		fmt.Fprintf(a.out, "    %s\n", oneLine(line))
	}
	if more := int(p.Created+p.Configured+p.Deleted) - len(p.Changes); more > 0 {
		fmt.Fprintf(a.out, "    and %d more\n", more)
	}
	if p.Message != "" {
		fmt.Fprintf(a.out, "    %s\n", oneLine(p.Message))
	}
	fmt.Fprintf(a.out, "    line by line, from a checkout of %s: sluice diff kustomization %s -n %s --path …\n",
		oneLine(p.Revision), key.Name, key.Namespace)
	return nil
}

func (a *app) gateHistory() *cobra.Command {
	return a.ofGate(&cobra.Command{
		Use: "history NAME", Short: "Show when a gate opened and closed, and why, the newest first",
		Example: "  sluice gate history release",
	}, func(_ context.Context, _ client.Client, g *gatingv1.Gate) error {
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
func (a *app) ofGate(c *cobra.Command, show func(context.Context, client.Client, *gatingv1.Gate) error) *cobra.Command {
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
		return show(ctx, cluster, g)
	}
	return c
}
