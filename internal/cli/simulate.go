package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func (a *app) simulate() *cobra.Command {
	c := group("simulate", "Show what would happen, and change nothing",
		"  sluice simulate gates --at 2026-12-24T12:00:00Z -A")
	c.AddCommand(a.simulateGates())
	return c
}

func (a *app) simulateGates() *cobra.Command {
	var at string
	var everywhere bool
	c := &cobra.Command{
		Use: "gates", Aliases: []string{"gate"},
		Short: "Show what gates would let through and what they would hold at a time", Args: noArgs,
		Long: `Show for every object that gates stand over whether a change of it would pass at a time.

Schedules, requests and their windows are those of that time. Approvals, checks and who waits are taken as they are now.`,
		Example: "  sluice simulate gates --at 2026-12-24T12:00:00Z\n" +
			"  sluice simulate gates --at 2026-12-24T12:00:00+01:00 -A",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need("at", at); err != nil {
				return err
			}
			when, err := time.Parse(time.RFC3339, at)
			if err != nil {
				return usagef("--at %q: write it as 2006-01-02T15:04:05Z (RFC 3339)", at)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.simulateAt(ctx, when, everywhere)
		},
	}
	c.Flags().StringVar(&at, "at", "", "the time, as 2006-01-02T15:04:05Z")
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "objects of all namespaces")
	return c
}

func (a *app) simulateAt(ctx context.Context, at time.Time, everywhere bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	q, err := a.query(kinds, nil, getOptions{everywhere: everywhere})
	if err != nil {
		return err
	}
	rows, err := q.run(ctx, c)
	if err != nil {
		return err
	}
	s := &simulation{client: c, at: at, gates: map[types.NamespacedName]*foreseen{}}
	lines := [][]cell{{{text: "OBJECT"}, {text: "THEN"}, {text: "WAITING"}, {text: "WHY"}}}
	passing := 0
	for _, r := range rows {
		o, ok := r.object.(reconcile.Gated)
		if !ok {
			continue
		}
		over := over(o)
		if len(over) == 0 {
			continue
		}
		held, err := s.held(ctx, o, over)
		if err != nil {
			return err
		}
		revision := "-"
		if p := o.Held().Pending; p != nil {
			revision = cmp.Or(short(oneLine(p.Revision)), "-")
		}
		then := cell{"held", red}
		if len(held) == 0 {
			then, held = cell{"passes", green}, []string{"-"}
			passing++
		}
		object := fmt.Sprintf("%s/%s/%s", r.kind.title(), o.GetNamespace(), o.GetName())
		lines = append(lines, []cell{{text: object}, then, {text: revision}, {text: strings.Join(held, "; ")}})
	}
	if len(lines) == 1 {
		a.step("gates stand over no object here; -A looks in all namespaces")
		return nil
	}
	if err := (&table{out: a.out}).print(lines...); err != nil {
		return err
	}
	a.step("at %s %d of %d objects would pass; approvals, checks and who waits are taken as they are now",
		at.Format(time.RFC3339), passing, len(lines)-1)
	return nil
}

// over lists the gates over an object: those that it was last seen under, and those that it names.
func over(o reconcile.Gated) []types.NamespacedName {
	var gates []types.NamespacedName
	for _, text := range o.Held().Gates {
		namespace, name, _ := strings.Cut(text, "/")
		gates = append(gates, types.NamespacedName{Namespace: namespace, Name: name})
	}
	for _, g := range o.GateRefs() {
		key := types.NamespacedName{Namespace: cmp.Or(g.Namespace, o.GetNamespace()), Name: g.Name}
		if !slices.Contains(gates, key) {
			gates = append(gates, key)
		}
	}
	return gates
}

// simulation is what gates will be at a time.
type simulation struct {
	client client.Client
	at     time.Time
	gates  map[types.NamespacedName]*foreseen
}

// foreseen is a gate at the time, or why there is none.
type foreseen struct {
	gate *gatingv1.Gate
	none string
}

// held lists the gates that hold an object at the time, and why.
func (s *simulation) held(ctx context.Context, o reconcile.Gated, over []types.NamespacedName) ([]string, error) {
	if c := held(o); c != nil && c.Reason == meta.AccessDeniedReason {
		return []string{oneLine(c.Message)}, nil
	}
	var why []string
	for _, key := range over {
		f, err := s.foresee(ctx, key)
		if err != nil {
			return nil, err
		}
		revision := ""
		if p := o.Held().Pending; p != nil {
			revision = p.Revision
		}
		switch {
		case f.gate == nil:
			why = append(why, fmt.Sprintf("%s: %s", key, f.none))
		case gate.Passes(f.gate, revision, s.at):
		case len(f.gate.Status.ApprovedRevisions) > 0:
			why = append(why, fmt.Sprintf("%s: lets only %s through", key,
				oneLine(strings.Join(f.gate.Status.ApprovedRevisions, ", "))))
		default:
			why = append(why, fmt.Sprintf("%s: %s", key, oneLine(f.gate.Status.Why.Message)))
		}
	}
	return why, nil
}

func (s *simulation) foresee(ctx context.Context, key types.NamespacedName) (*foreseen, error) {
	if f := s.gates[key]; f != nil {
		return f, nil
	}
	g, f := &gatingv1.Gate{}, &foreseen{}
	switch err := s.client.Get(ctx, key, g); {
	case apierrors.IsNotFound(err):
		f.none = "it is not there"
	case apierrors.IsForbidden(err):
		f.none = "you may not read it, so it is taken for closed"
	case err != nil:
		return nil, explain(fmt.Sprintf("cannot get Gate '%s'", key), err)
	default:
		f.gate = gate.Foresee(g, s.at)
	}
	s.gates[key] = f
	return f, nil
}
