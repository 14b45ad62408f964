package differential

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// comparison compares Sluice with an oracle over generated inputs.
type comparison[T any] struct {
	quick, full int // inputs by default, and with SLUICE_DIFFERENTIAL=full
	generate    func(r *rand.Rand) T
	// compare returns a text that says how the results differ, or "" if they do not.
	compare func(t *testing.T, input T) string
	smaller func(input T) []T // inputs that are a little smaller
	show    func(input T) string
}

// maxShrinks bounds the attempts to make an input smaller.
const maxShrinks = 2000

// mostFailures is the number of differences after which a comparison ends.
const mostFailures = 5

func (c comparison[T]) run(t *testing.T) {
	t.Helper()
	n, seed := c.quick, uint64(1)
	if os.Getenv("SLUICE_DIFFERENTIAL") == "full" {
		n = c.full
	}
	if s, err := strconv.ParseUint(os.Getenv("SLUICE_DIFFERENTIAL_SEED"), 10, 64); err == nil {
		seed = s
	}
	failed := 0
	for i := range n {
		input := c.generate(rand.New(rand.NewPCG(seed, uint64(i)))) //nolint:gosec // not negative
		difference := c.compare(t, input)
		if difference == "" {
			continue
		}
		input, difference = c.shrink(t, input, difference)
		t.Errorf("input %d of seed %d:\n%s\n%s", i, seed, c.show(input), difference)
		if failed++; failed == mostFailures {
			t.Fatal("too many differences")
		}
	}
}

// shrink returns a small input whose results differ, and how they do.
func (c comparison[T]) shrink(t *testing.T, input T, difference string) (T, string) {
	for tries := 0; ; {
		found := false
		for _, next := range c.smaller(input) {
			if tries++; tries > maxShrinks {
				return input, difference
			}
			if d := c.compare(t, next); d != "" {
				input, difference, found = next, d, true
				break
			}
		}
		if !found {
			return input, difference
		}
	}
}

// chance reports true once in n times.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// pick returns one of the values.
func pick[V any](r *rand.Rand, values ...V) V { return values[r.IntN(len(values))] }
