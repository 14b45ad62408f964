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

// wait returns how much longer the changes wait: until no other change came for the quiet time, and at most the
// configured maximum (10 times the quiet time by default). It stops the timer.
func (b *batch) wait(spec *imagev1.Batch, changes []edit.Change, now time.Time) time.Duration {
	if b.timer != nil {
		b.timer.Stop()
	}
	if spec == nil || spec.Quiet == nil || spec.Quiet.Duration <= 0 {
		return 0
	}
	if b.pending == "" {
		b.first = now
	}
	if digest := change.Digest(changes); b.pending != digest {
		b.pending, b.last = digest, now
	}
	atMost := 10 * spec.Quiet.Duration
	if spec.AtMost != nil {
		atMost = spec.AtMost.Duration
	}
	return min(b.last.Add(spec.Quiet.Duration).Sub(now), b.first.Add(atMost).Sub(now))
}

func (b *batch) reset() {
	if b.timer != nil {
		b.timer.Stop()
	}
	*b = batch{}
}
