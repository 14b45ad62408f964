package automate

import (
	"time"

	"k8s.io/utils/clock"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// batch delays changes so that others can join the same commit. If it is lost, the delay starts again.
type batch struct {
	pending     string // digest of the changes that wait
	first, last time.Time
	timer       clock.Timer
}

// wait returns how much longer the changes wait, and stops the timer. They wait for the delay of the spec after the
// first change, unless the pass is requested; and until no other change came for the quiet time of the batch, at most
// for its maximum (10 times the quiet time by default).
func (b *batch) wait(spec *imagev1.ImageUpdateAutomationSpec, requested bool, changes []edit.Change,
	now time.Time) time.Duration {
	if b.timer != nil {
		b.timer.Stop()
	}
	var delay, quiet time.Duration
	if spec.PolicyChangeDelay != nil && !requested {
		delay = spec.PolicyChangeDelay.Duration
	}
	if spec.Batch != nil && spec.Batch.Quiet != nil {
		quiet = spec.Batch.Quiet.Duration
	}
	if b.pending == "" {
		b.first = now
	}
	if digest := change.Digest(changes); b.pending != digest {
		b.pending, b.last = digest, now
	}
	wait := max(0, b.first.Add(delay).Sub(now))
	if quiet <= 0 {
		return wait
	}
	atMost := 10 * quiet
	if spec.Batch.AtMost != nil {
		atMost = spec.Batch.AtMost.Duration
	}
	return max(wait, min(b.last.Add(quiet).Sub(now), b.first.Add(atMost).Sub(now)))
}

func (b *batch) reset() {
	if b.timer != nil {
		b.timer.Stop()
	}
	*b = batch{}
}
