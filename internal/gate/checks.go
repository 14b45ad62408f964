package gate

import (
	"cmp"
	"context"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"strconv"
	"sync"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

const (
	defaultCheckInterval = time.Minute
	defaultCheckTimeout  = 10 * time.Second
	maxProbes            = 32 // at once, of all gates
	maxCheckMessage      = 512
)

// Checks tries the checks of gates beside their passes, so that an endpoint that hangs holds up its own gate
// and no other.
type Checks struct {
	Prober Prober
	Clock  clock.PassiveClock
	Edges  *reconcile.Edges

	once  sync.Once
	slots chan struct{}

	mu    sync.Mutex
	tried map[types.UID]map[string]*trial
}

// Prober tries a check once. What it returns says what it found; the error says that the check does not hold.
type Prober interface {
	Probe(ctx context.Context, g *gatingv1.Gate, c gatingv1.Check) (string, error)
}

// trial is what is known of a check.
type trial struct {
	generation int64 // of the gate whose check it was
	underWay   bool
	result     gatingv1.CheckResult // CheckedAt is zero before the first
}

// Look returns what the checks of a gate gave, starts those that are due, and says when the next one is, or
// may hold for long enough. The gate is woken by those that end. The error is a final fault of a check that
// can never be tried.
func (k *Checks) Look(g *gatingv1.Gate, now time.Time) ([]gatingv1.CheckResult, time.Time, error) {
	for _, c := range g.Spec.Checks {
		if err := validate(c); err != nil {
			return nil, time.Time{}, fault.New(gatingv1.InvalidCheckReason, "check '%s' cannot be tried", c.Name).
				Because(err).Final()
		}
	}
	k.once.Do(func() { k.slots = make(chan struct{}, maxProbes) })
	k.mu.Lock()
	defer k.mu.Unlock()
	trials := k.trials(g, now)
	var results []gatingv1.CheckResult
	var look time.Time
	for _, c := range g.Spec.Checks {
		t := trials[c.Name]
		due := t.result.CheckedAt.Add(interval(c))
		if t.result.CheckedAt.IsZero() || !due.After(now) || t.result.CheckedAt.After(now) {
			due = time.Time{}
			k.start(g, c, t)
		}
		result := t.result
		if result.CheckedAt.IsZero() {
			result = gatingv1.CheckResult{Name: c.Name, Since: meta.TimeOf(now), CheckedAt: meta.TimeOf(now),
				Message: "it was not tried yet"}
		}
		result.Generation = t.generation
		held := result.Since.Add(holdFor(c))
		result.Holds = result.Passed && !held.After(now) && now.Sub(result.CheckedAt.Time) <= stale(c)
		if result.Passed && held.After(now) {
			due = earliest(due, held)
			result.Message += ", but not for long enough"
		}
		results, look = append(results, result), earliest(look, due)
	}
	return results, look, nil
}

// trials returns what is known of a gate's checks as they are now. After a start that is what its status
// says, if that is not too old.
func (k *Checks) trials(g *gatingv1.Gate, now time.Time) map[string]*trial {
	known, trials := k.tried[g.UID], map[string]*trial{}
	for _, c := range g.Spec.Checks {
		t := known[c.Name]
		if t == nil || t.generation != g.Generation {
			t = &trial{generation: g.Generation}
			for _, r := range g.Status.Checks {
				if known == nil && r.Name == c.Name && r.Generation == g.Generation &&
					now.Sub(r.CheckedAt.Time) <= stale(c) {
					t.result = r
				}
			}
		}
		trials[c.Name] = t
	}
	if k.tried == nil {
		k.tried = map[types.UID]map[string]*trial{}
	}
	if k.tried[g.UID] = trials; len(trials) == 0 {
		delete(k.tried, g.UID)
	}
	return trials
}

// start tries a check beside the pass, unless that is under way.
func (k *Checks) start(g *gatingv1.Gate, c gatingv1.Check, t *trial) {
	if t.underWay {
		return
	}
	t.underWay = true
	g = g.DeepCopy()
	go func() {
		k.slots <- struct{}{}
		defer func() { <-k.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), timeout(c))
		message, err := k.Prober.Probe(ctx, g, c)
		cancel()
		if err != nil {
			message = err.Error()
		}
		now := meta.TimeOf(k.Clock.Now())
		k.mu.Lock()
		t.underWay = false
		if r := &t.result; r.CheckedAt.IsZero() || r.Passed != (err == nil) || now.Sub(r.CheckedAt.Time) > stale(c) {
			r.Since = now
		}
		t.result.Name, t.result.Passed, t.result.CheckedAt, t.result.Message = c.Name, err == nil, now,
			excerpt.Bytes(message, maxCheckMessage)
		k.mu.Unlock()
		k.Edges.Enqueue(ref(g))
	}()
}

// Forget lets go of what is known of a gate.
func (k *Checks) Forget(gate types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tried, gate)
}

// validate tells what makes a check impossible to try, whatever the world is like.
func validate(c gatingv1.Check) error {
	if c.Object != nil {
		_, err := expression.Compile(c.Object.Expression, "object")
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

// stale is how old a result is that says nothing any more.
func stale(c gatingv1.Check) time.Duration { return 2*interval(c) + timeout(c) + time.Second }

func durationOr(d *meta.Duration, unset time.Duration) time.Duration {
	if d == nil {
		return unset
	}
	return cmp.Or(max(d.Duration, 0), unset)
}
