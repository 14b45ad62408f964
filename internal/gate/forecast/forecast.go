// Package forecast computes what gates will be at a later time, and what they would hold then.
package forecast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

// Transition is a time at which the schedule of a gate or the gate itself changes.
type Transition struct {
	At       time.Time
	Schedule calendar.State // what the schedule sets from then on
	Entry    string         // name of the schedule entry that sets it; "" if none
	Opened   bool           // whether the gate is open from then on
	Why      string
}

// Transitions returns the first transitions of a gate within span from now, at most limit, and whether there are more.
// Approvals and checks are assumed to stay as they are now.
func Transitions(g *gatingv1.Gate, now time.Time, span time.Duration, limit int) (list []Transition, more bool,
	err error) {
	c, err := gate.InputOf(g)
	if err != nil {
		return nil, false, err
	}
	times := transitionTimes(g, c.Calendar, now, now.Add(span), limit)
	for _, t := range times[:min(len(times), limit)] {
		state, entry := c.Calendar.At(t)
		then := gate.Simulate(g, t)
		list = append(list, Transition{
			At: t, Schedule: state, Entry: entry, Why: then.Status.Why.Message,
			Opened: apimeta.IsStatusConditionTrue(then.Status.Conditions, gatingv1.OpenedCondition),
		})
	}
	return list, len(times) > limit, nil
}

// transitionTimes returns when the schedule or the gate changes, in order and without duplicates.
func transitionTimes(g *gatingv1.Gate, c *calendar.Calendar, now, until time.Time, limit int) []time.Time {
	var all []time.Time
	walk := func(next func(time.Time) time.Time) {
		t := next(now)
		for n := 0; !t.IsZero() && !t.After(until) && n <= limit; n++ {
			all = append(all, t.UTC())
			t = next(t)
		}
	}
	walk(c.Next)
	walk(func(t time.Time) time.Time {
		if next := gate.Simulate(g, t).Status.NextTransition; next != nil {
			return next.At.Time
		}
		return time.Time{}
	})
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// Simulation computes what gates hold at one time. It reads each gate once.
type Simulation struct {
	Partial bool // the caller may not list gates, so those that select objects are known from the status of objects

	client     client.Reader
	at         time.Time
	gates      map[types.NamespacedName]*decision.Gate
	namespaces func(name string) (labels.Set, bool)
	listed     bool
	all        []gatingv1.Gate
}

// NewSimulation returns a simulation at the given time.
func NewSimulation(c client.Reader, at time.Time) *Simulation {
	return &Simulation{client: c, at: at, gates: map[types.NamespacedName]*decision.Gate{},
		namespaces: gate.NamespaceLabels(c)}
}

// GatesOf returns the gates that apply to an object: those in its status, and those that its spec names.
func GatesOf(o reconcile.Gated) []types.NamespacedName {
	var gates []types.NamespacedName
	for _, text := range o.Held().Gates {
		namespace, name, _ := strings.Cut(text, "/")
		gates = append(gates, types.NamespacedName{Namespace: namespace, Name: name})
	}
	for _, g := range o.GateRefs() {
		key := gateKey(g, o)
		if !slices.Contains(gates, key) {
			gates = append(gates, key)
		}
	}
	return gates
}

// gateKey returns the gate that a reference of an object names.
func gateKey(g meta.GateReference, o reconcile.Gated) types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(g.Namespace, o.GetNamespace()), Name: g.Name}
}

// HeldBy returns why each closed gate holds an object, as "namespace/name: reason". It returns nothing if all let the
// object's pending revision through.
func (s *Simulation) HeldBy(ctx context.Context, o reconcile.Gated) ([]string, error) {
	revision := ""
	if p := o.Held().Pending; p != nil {
		revision = p.Revision
	}
	var reasons []string
	for _, key := range GatesOf(o) {
		d, err := s.decide(ctx, key, o, revision, func(*gatingv1.Gate) decision.Ruling {
			return decision.Undecided(decision.ChangeUnknown, "")
		})
		if err != nil {
			return nil, err
		}
		if d.Holds() {
			reasons = append(reasons, fmt.Sprintf("%s: %s", key, d.Alone()))
		}
	}
	return reasons, nil
}

// decide returns what a gate would decide about a change of an object to a revision. judge is what its rules say.
func (s *Simulation) decide(ctx context.Context, key types.NamespacedName, o reconcile.Gated, revision string,
	judge func(*gatingv1.Gate) decision.Ruling) (decision.Decision, error) {
	g, err := s.read(ctx, key)
	if err != nil {
		return decision.Decision{}, err
	}
	change := decision.Change{Revision: revision}
	if g.AsksRules(s.at) {
		change.Rules = judge(g.Gate)
	}
	d := decision.Decide(*g, gate.Asker(o), change, s.at)
	if d.NeedsTurn {
		d.Cause = gate.Turn(g.Gate, o, revision, s.at)
	}
	return d, nil
}

// read returns a gate at the time of the simulation. A gate that does not exist or that the caller may not read holds.
func (s *Simulation) read(ctx context.Context, key types.NamespacedName) (*decision.Gate, error) {
	if g := s.gates[key]; g != nil {
		return g, nil
	}
	live, g := &gatingv1.Gate{}, &decision.Gate{Key: key}
	switch err := s.client.Get(ctx, key, live); {
	case apierrors.IsNotFound(err):
		g.Blocked = decision.NotFound
	case apierrors.IsForbidden(err):
		g.Blocked = decision.Unreadable
	case err != nil:
		return nil, fmt.Errorf("cannot get Gate '%s': %w", key, err)
	default:
		g.Gate = gate.Simulate(live, s.at)
	}
	s.gates[key] = g
	return g, nil
}
