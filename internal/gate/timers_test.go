package gate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestATimeThatComesDuringAnEvaluationIsNotMissed has evaluations that take some time: until before, and until after
// what they find next.
func TestATimeThatComesDuringAnEvaluationIsNotMissed(t *testing.T) {
	began := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	next := began.Add(time.Minute)
	for name, took := range map[string]time.Duration{"before": time.Second, "at": time.Minute, "after": time.Hour} {
		c, timers, enqueued := clocktesting.NewFakeClock(began.Add(took)), timers{}, 0
		timers.set(c, types.UID("g"), next, began, func() { enqueued++ })
		if left := next.Sub(c.Now()); left > 0 {
			if c.Step(left - time.Nanosecond); enqueued != 0 {
				t.Errorf("%s: enqueued too early", name)
			}
			c.Step(time.Nanosecond)
		}
		if enqueued != 1 {
			t.Errorf("%s: enqueued %d times", name, enqueued)
		}
	}
}
