package campaign

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/build/expression/expressiontest"
)

const (
	maxEvaluation = 1100 * time.Millisecond
	maxAllocated  = 64 << 20
	// expressionGarbage is the share of garbage, in percent of the heap, at which it is collected: the heap is small.
	expressionGarbage = 1000
)

// TestCampaignExpressions evaluates generated CEL expressions, one at a time. An expression that was generated before
// is not evaluated again: the variables are the same.
func TestCampaignExpressions(t *testing.T) {
	const short, full = 1500, 1_000_000
	e := begin(t, short, full)
	defer debug.SetGCPercent(debug.SetGCPercent(expressionGarbage))
	variables := expression.Map(expressiontest.Variables())
	compiled, repeated, slowest, largest := 0, 0, time.Duration(0), uint64(0)
	known := map[uint64]bool{}
	hashes := maphash.MakeSeed()
	e.each(func(i int, random *rand.Rand) {
		source := expressiontest.Expression(random, 1+i%4)
		hash := maphash.String(hashes, source)
		if known[hash] {
			repeated++
			return
		}
		known[hash] = true
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
	e.note("%d compiled, %d generated before; at most %s and %d MiB each", compiled, repeated,
		slowest.Round(time.Millisecond), largest>>20)
	if compiled < (e.count-repeated)/2 {
		t.Errorf("only %d of %d expressions compiled", compiled, e.count-repeated)
	}
}

// evaluate returns how long an evaluation took, and what it allocated in all. The counter does not stop the process,
// and is exact to some MiB at most.
func evaluate(ctx context.Context, x *expression.Expression, variables expression.Map) (time.Duration, uint64) {
	before := allocated()
	start := time.Now()
	if _, err := x.Value(ctx, variables); err != nil && !errors.Is(err, context.Canceled) {
		_ = err.Error() // the library creates some messages late
	}
	return time.Since(start), allocated() - before
}

// allocated returns the bytes that the process has allocated since its start.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
