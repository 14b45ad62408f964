package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/gate/promotion"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	defaultCheckInterval = time.Minute
	defaultCheckTimeout  = 10 * time.Second
	maxCheckMessage      = 512 // bytes

	notRunYet = "has not run yet"
)

// Checks runs the checks of gates in the background, so that an endpoint that does not answer delays only its gate.
type Checks struct {
	Prober Prober
	Clock  clock.PassiveClock
	Edges  *reconcile.Edges

	probes probes

	mu     sync.Mutex
	byGate map[types.UID]map[string]*checkState
	watch  watches
}

// Prober runs a check once. It returns what it found, or an error if the check fails. Both are shown in the status.
type Prober interface {
	Probe(ctx context.Context, g *gatingv1.Gate, c gatingv1.Check) (string, error)
	// Members reads the objects of a check of revisions.
	Members(ctx context.Context, g *gatingv1.Gate, c *gatingv1.RevisionCheck) ([]promotion.Member, error)
	// Clusters asks the hub for a check of clusters, and whether a revision has failed there.
	Clusters(ctx context.Context, g *gatingv1.Gate, c *gatingv1.ClustersCheck, at string) (*fleet.Rollout, error)
}

// checkState is the state of one check.
type checkState struct {
	generation int64                // of the gate
	members    *memberSelector      // of a check of revisions in this cluster
	changed    bool                 // an object of the check has changed since the last run began
	result     gatingv1.CheckResult // CheckedAt is zero before the first run
}

// Run starts the checks of a gate that are due, and returns the results of their last runs. Review is when
// the next check is due, or when one has passed for long enough to hold. A check that ends enqueues the gate.
// The error is a terminal fault of an invalid check.
func (k *Checks) Run(g *gatingv1.Gate, now time.Time) (results []gatingv1.CheckResult, review time.Time, err error) {
	for _, c := range g.Spec.Checks {
		if k.isKnown(g, c) {
			continue
		}
		if err := validate(c); err != nil {
			return nil, time.Time{}, fault.New(gatingv1.InvalidCheckReason, "check '%s' is invalid", c.Name).
				Because(err).Final()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	states := k.states(g, now)
	for _, c := range g.Spec.Checks {
		t := states[c.Name]
		due := t.result.CheckedAt.Add(interval(c))
		if until := soaksUntil(t.result); until.After(t.result.CheckedAt.Time) {
			due = earliest(due, until)
		}
		if t.changed || t.result.CheckedAt.IsZero() || !due.After(now) || t.result.CheckedAt.After(now) {
			due = time.Time{}
			k.start(g, c, t)
		}
		result := t.result
		if result.CheckedAt.IsZero() {
			result = gatingv1.CheckResult{Name: c.Name, Since: meta.TimeOf(now), CheckedAt: meta.TimeOf(now),
				Message: notRunYet}
		}
		result.Generation = t.generation
		held := result.Since.Add(holdFor(c))
		result.Holds = result.Passed && !held.After(now) && now.Sub(result.CheckedAt.Time) <= stale(c)
		if result.Passed && held.After(now) {
			due = earliest(due, held)
			result.Message += fmt.Sprintf(", but not yet for %s", holdFor(c))
		}
		results, review = append(results, result), earliest(review, due)
	}
	return results, review, nil
}

// isKnown reports whether a check has a state for the generation of its gate. Only valid checks have one: an expression
// is not compiled again.
func (k *Checks) isKnown(g *gatingv1.Gate, c gatingv1.Check) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.byGate[g.UID][c.Name]
	return t != nil && t.generation == g.Generation
}

// states returns the states of the checks of a gate. After a start of the controller they are taken from the gate's
// status, unless that is too old.
func (k *Checks) states(g *gatingv1.Gate, now time.Time) map[string]*checkState {
	known, states := k.byGate[g.UID], map[string]*checkState{}
	for _, c := range g.Spec.Checks {
		t := known[c.Name]
		if t == nil || t.generation != g.Generation {
			earlier := t
			t = &checkState{generation: g.Generation}
			for _, r := range g.Status.Checks {
				if r.Name != c.Name {
					continue
				}
				t.result.Revision = r.Revision.DeepCopy() // counts only for the same definition
				if known == nil && r.Generation == g.Generation && now.Sub(r.CheckedAt.Time) <= stale(c) {
					t.result = r
				}
			}
			if earlier != nil {
				t.result.Revision = earlier.result.Revision
			}
		}
		states[c.Name] = t
	}
	if k.byGate == nil {
		k.byGate = map[types.UID]map[string]*checkState{}
	}
	if k.byGate[g.UID] = states; len(states) == 0 {
		delete(k.byGate, g.UID)
	}
	k.watch.set(g, states)
	return states
}

// start runs a check in the background when it is its turn, unless it is running.
func (k *Checks) start(g *gatingv1.Gate, c gatingv1.Check, t *checkState) {
	key := probeKey{gate: g.UID, check: c.Name}
	if k.probes.isRunning(key) {
		return // it enqueues the gate when it ends
	}
	t.changed = false
	g = g.DeepCopy()
	last := *t.result.DeepCopy()
	k.probes.run(key, g.Namespace, func() {
		observed, message, err := k.probe(g, c, last)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.record(&t.result, c, observed, message, err)
	}, func() { k.Edges.Enqueue(refOf(g)) })
}

// record changes the result of a check to what was found now.
func (k *Checks) record(r *gatingv1.CheckResult, c gatingv1.Check, observed *gatingv1.ObservedRevision, message string,
	err error) {
	if err != nil {
		message = err.Error()
	}
	now := meta.TimeOf(k.Clock.Now())
	if observed != nil {
		observed.ObservedAt = &now
		r.Revision = observed
	}
	if r.CheckedAt.IsZero() || r.Passed != (err == nil) || now.Sub(r.CheckedAt.Time) > stale(c) {
		r.Since = now
	}
	r.Name, r.Passed, r.CheckedAt, r.Message = c.Name, err == nil, now, excerpt.Bytes(message, maxCheckMessage)
}

// probe runs a check once, after its last result. A check that panics has failed. A check of revisions or clusters also
// returns what is known after it; nil if its objects could not be read.
func (k *Checks) probe(g *gatingv1.Gate, c gatingv1.Check, last gatingv1.CheckResult) (
	observed *gatingv1.ObservedRevision, message string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout(c))
	defer cancel()
	err = guard.Do("checking a gate", func() (err error) {
		if c.Clusters != nil {
			observed, message, err = k.probeClusters(ctx, g, c, last)
			return err
		}
		if c.Revision == nil {
			message, err = k.Prober.Probe(ctx, g, c)
			return err
		}
		members, err := k.Prober.Members(ctx, g, c.Revision)
		if err != nil {
			return err
		}
		asked := promotion.CheckOf(c.Revision, stale(c))
		next := asked.Advance(last.Revision, members, k.Clock.Now())
		observed, message = &next, asked.Describe(next, members)
		if next.Promoted == "" {
			return errors.New(message)
		}
		return nil
	})
	return observed, message, err
}

// Forget deletes the states of the checks of a gate.
func (k *Checks) Forget(gate types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byGate, gate)
	k.watch.forget(gate)
	k.probes.forget(gate)
}

// validate returns an error if a check can never run.
func validate(c gatingv1.Check) error {
	if c.Object != nil {
		_, err := expression.Compile(c.Object.Expression, "object")
		return err
	}
	if c.Revision != nil && c.Revision.Selector != nil {
		_, err := metav1.LabelSelectorAsSelector(c.Revision.Selector)
		return err
	}
	if c.Prometheus != nil {
		_, err := strconv.ParseFloat(c.Prometheus.Below, 64)
		return err
	}
	return nil
}

func interval(c gatingv1.Check) time.Duration { return durationOr(c.Interval, defaultCheckInterval) }

func timeout(c gatingv1.Check) time.Duration { return durationOr(c.Timeout, defaultCheckTimeout) }

func holdFor(c gatingv1.Check) time.Duration { return durationOr(c.For, 0) }

// soaksUntil returns when the soak of the revision that a check has observed ends; zero if none soaks.
func soaksUntil(r gatingv1.CheckResult) time.Time {
	if r.Revision == nil || r.Revision.Until == nil {
		return time.Time{}
	}
	return r.Revision.Until.Time
}

// stale returns the age from which a result is not used.
func stale(c gatingv1.Check) time.Duration { return 2*interval(c) + timeout(c) + time.Second }

func durationOr(d *meta.Duration, fallback time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	return cmp.Or(max(d.Duration, 0), fallback)
}
