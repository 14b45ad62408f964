package forecast

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// Decision is what a gate would decide about a change of an object.
type Decision struct {
	Gate      string              `json:"gate"` // namespace/name
	Passes    bool                `json:"passes"`
	Outcome   gatingv1.Outcome    `json:"outcome"`
	Rule      string              `json:"rule,omitempty"`    // that decides; empty if the state of the gate does
	Message   string              `json:"message,omitempty"` // why the gate holds the change
	Approvals *gatingv1.Approvals `json:"approvals,omitempty"`
}

// Decisions returns what each gate that applies to an object would decide about a change that is not in the cluster
// yet. A nil change is one that is not known; gates with rules hold it.
func (s *Simulation) Decisions(ctx context.Context, kind string, o reconcile.Gated, c *risk.Change) ([]Decision,
	error) {
	keys, err := s.gatesFor(ctx, kind, o)
	if err != nil {
		return nil, err
	}
	var out []Decision
	for _, key := range keys {
		d, err := s.decide(ctx, key, o, "", func(g *gatingv1.Gate) decision.Ruling {
			if c == nil {
				return decision.Undecided(decision.ChangeUnknown, "")
			}
			return gate.Judge(ctx, g, o, c)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, decisionOf(d))
	}
	return out, nil
}

// decisionOf returns what commands show of a decision.
func decisionOf(d decision.Decision) Decision {
	out := Decision{Gate: d.Gate.String(), Passes: !d.Holds(), Outcome: d.Result(), Message: d.Detail()}
	if d.Rule != nil && out.Outcome != decision.OutcomeWaits {
		out.Outcome, out.Rule, out.Approvals = d.Rule.Outcome, d.Rule.Name, d.Rule.Approvals
	}
	return out
}

// gatesFor returns the gates that apply to an object as it is declared: those that it names, and those of all gates
// that select it. If the caller may not list gates, it is those that the controller found before.
func (s *Simulation) gatesFor(ctx context.Context, kind string, o reconcile.Gated) ([]types.NamespacedName, error) {
	if err := s.list(ctx); err != nil {
		return nil, err
	}
	if s.Partial {
		return GatesOf(o), nil
	}
	var out []types.NamespacedName
	for _, ref := range o.GateRefs() {
		out = append(out, gateKey(ref, o))
	}
	for n := range s.all {
		key := client.ObjectKeyFromObject(&s.all[n])
		if gate.Selects(&s.all[n], kind, o, s.namespaces) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out, nil
}

// list reads all gates, once.
func (s *Simulation) list(ctx context.Context) error {
	if s.listed {
		return nil
	}
	var list gatingv1.GateList
	switch err := s.client.List(ctx, &list); {
	case apierrors.IsForbidden(err):
		s.Partial = true
	case err != nil:
		return fmt.Errorf("cannot list gates: %w", err)
	}
	s.listed, s.all = true, list.Items
	for n := range s.all {
		g := &s.all[n]
		key := client.ObjectKeyFromObject(g)
		s.gates[key] = &decision.Gate{Key: key, Gate: gate.Simulate(g, s.at)}
	}
	return nil
}
