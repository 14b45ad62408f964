package campaign

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/expression/expressiontest"
)

const (
	maxEvaluation = 1100 * time.Millisecond
	maxAllocated  = 64 << 20
)

// TestCampaignExpressions evaluates generated CEL expressions, one at a time.
func TestCampaignExpressions(t *testing.T) {
	const short, full = 1500, 1_000_000
	e := begin(t, short, full)
	variables := expression.Map(expressiontest.Variables())
	compiled, slowest, largest := 0, time.Duration(0), uint64(0)
	e.each(func(i int, random *rand.Rand) {
		source := expressiontest.Expression(random, 1+i%4)
		x, err := expression.CompileValue(source, expressiontest.Names...)
		if err != nil {
			return
		}
		compiled++
		took, allocated := evaluate(t.Context(), x, variables)
		if took > maxEvaluation { // the machine may have been busy
			took, allocated = evaluate(t.Context(), x, variables)
		}
		if took > maxEvaluation || allocated > maxAllocated {
			t.Errorf("%s and %d MiB: %s", took, allocated>>20, source)
		}
		slowest, largest = max(slowest, took), max(largest, allocated)
	})
	e.note("%d compiled, at most %s and %d MiB each", compiled, slowest.Round(time.Millisecond), largest>>20)
	if compiled < e.count/2 {
		t.Errorf("only %d of %d expressions compiled", compiled, e.count)
	}
}

// evaluate returns how long an evaluation took, and what it allocated in all.
func evaluate(ctx context.Context, x *expression.Expression, variables expression.Map) (time.Duration, uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	if _, err := x.Value(ctx, variables); err != nil && !errors.Is(err, context.Canceled) {
		_ = err.Error() // the library creates some messages late
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return took, after.TotalAlloc - before.TotalAlloc
}
