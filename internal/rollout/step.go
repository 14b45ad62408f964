package rollout

import (
	"context"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Step is a part of a pass. The pass ends with the first step that returns an outcome.
type Step func(context.Context) *reconcile.Outcome

// Do does steps until one has an outcome; nil if none has.
func Do(ctx context.Context, steps ...Step) *reconcile.Outcome {
	for _, step := range steps {
		if outcome := step(ctx); outcome != nil {
			return outcome
		}
	}
	return nil
}

// Stop returns the outcome of a step that failed with an error; nil if it did not.
func Stop(err error) *reconcile.Outcome {
	if err == nil {
		return nil
	}
	failed := reconcile.Failed(err)
	return &failed
}

// HeldProblem is why drift could not be corrected behind a closed gate. It is reported once.
type HeldProblem struct{ text string }

// Report reports an error unless it is the last reported one. It is nil if drift was corrected.
func (p *HeldProblem) Report(r *Report, err error) {
	text := ""
	if err != nil {
		text = "cannot correct drift behind a closed gate: " + err.Error()
	}
	if text != "" && text != p.text {
		r.Warn(fault.Reason(err, meta.ReconciliationFailedReason), text)
	}
	p.text = text
}
