package rollout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// explainTimeout bounds the requests that explain why objects are not healthy.
const explainTimeout = 15 * time.Second

// Wait is what to wait for in the middle of a pass.
type Wait struct {
	Owner   reconcile.Ref
	Targets []health.Target
	Checks  []*health.Check
	// Versions are the resource versions that the pass has just written. The health of older ones does not count.
	Versions map[health.Target]string
	// HasTTL holds the objects that are deleted automatically when they are done, such as Jobs.
	HasTTL map[health.Target]bool
	// NoFailFast waits for the timeout even if an object has failed.
	NoFailFast bool
	Timeout    time.Duration
	// Later makes WaitHealthy return [ErrUnhealthyYet] when the timeout has passed and no object has failed.
	Later bool
}

// ErrUnhealthyYet is the error of a wait that is continued by a later pass.
var ErrUnhealthyYet = errors.New("the objects are not healthy yet")

// WaitHealthy blocks until all objects are healthy. The error, of reason HealthCheckFailed, explains those that are not
// when one has failed, or when the timeout has passed. The health of failed objects stays watched: the owner is
// enqueued when it changes, until [Target.Forget] or the next wait.
func (t *Target) WaitHealthy(ctx context.Context, w Wait) error {
	unhealthy := func(results []health.Result, synced bool) ([]health.Result, bool, bool) {
		pending, failed := classify(results, w.HasTTL)
		return append(failed, pending...), synced && len(pending)+len(failed) == 0, len(failed) > 0 && !w.NoFailFast
	}
	return t.wait(ctx, w, "health check failed", unhealthy)
}

// WaitDeleted blocks until none of the objects exists. The error names those that do when the timeout has passed.
func (t *Target) WaitDeleted(ctx context.Context, w Wait) error {
	existing := func(results []health.Result, synced bool) (left []health.Result, isDone, hasFailed bool) {
		for _, r := range results {
			if r.Status != health.NotFound {
				left = append(left, r)
			}
		}
		return left, synced && len(left) == 0, false
	}
	return t.wait(ctx, w, "objects were not deleted", existing)
}

// wait blocks until judge reports that the wait is done or has failed.
func (t *Target) wait(ctx context.Context, w Wait, problem string,
	judge func(results []health.Result, synced bool) (left []health.Result, isDone, hasFailed bool)) error {
	if len(w.Targets) == 0 {
		return nil
	}
	key := healthKey(w.Owner)
	changed := t.waits.begin(key)
	defer t.waits.end(key)
	t.Health.SetTargets(key, w.Targets, w.Checks...)
	for target, version := range w.Versions {
		t.Health.ExpectVersion(key, target, version)
	}
	start := time.Now()
	timeout := time.NewTimer(w.Timeout)
	defer timeout.Stop()
	for timedOut := false; ; {
		left, isDone, hasFailed := judge(t.Health.Results(key))
		switch {
		case isDone:
			t.Health.Forget(key)
			return nil
		case timedOut && w.Later && !hasFailed:
			return ErrUnhealthyYet
		case hasFailed, timedOut:
			explain, cancel := context.WithTimeout(ctx, explainTimeout)
			defer cancel()
			return fault.New(meta.HealthCheckFailedReason, "%s after %s: %s", problem,
				min(time.Since(start), w.Timeout).Round(time.Second), explainUnhealthy(explain, t.Health, left))
		}
		select {
		case <-changed:
		case <-timeout.C:
			timedOut = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waits are the passes that wait for the health of their objects, by health key.
type waits struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// begin returns a channel that receives when the health of the owner's objects changes.
func (w *waits) begin(key string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]chan struct{}{}
	}
	changed := make(chan struct{}, 1)
	w.waiting[key] = changed
	return changed
}

func (w *waits) end(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, key)
}

// wake reports whether a pass waits for the owner's objects.
func (w *waits) wake(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed, waits := w.waiting[key]
	if !waits {
		return false
	}
	select {
	case changed <- struct{}{}:
	default: // it has not seen the previous change yet
	}
	return true
}

// ForgetHealth ends the watch of the health of an owner's objects.
func (t *Target) ForgetHealth(owner reconcile.Ref) { t.Health.Forget(healthKey(owner)) }

// IsHealthy reports whether all objects of the owner's last wait are healthy by now; false if none are watched.
func (t *Target) IsHealthy(owner reconcile.Ref) bool {
	results, synced := t.Health.Results(healthKey(owner))
	pending, failed := classify(results, nil)
	return synced && len(results) > 0 && len(pending)+len(failed) == 0
}
