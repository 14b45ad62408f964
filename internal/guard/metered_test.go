package guard

import (
	"io"
	"strings"
	"testing"
)

func TestMeteredReadersTakeMemoryAsTheyRead(t *testing.T) {
	for name, test := range map[string]struct {
		size, room, want int64
		refused          bool
	}{
		"an empty input": {room: 0, want: 0},
		"a short input":  {size: 1000, room: 8 << 20, want: leaseStep},
		"a long input":   {size: 1 << 20, room: 8 << 20, want: 4 << 20},
		"no memory":      {size: 8 << 20, room: 8 << 20, refused: true, want: 8 << 20},
	} {
		b := NewBudget(test.room)
		lease := NewLease(WithBudget(t.Context(), b), "a test")
		input := strings.NewReader(strings.Repeat("x", int(test.size)))
		n, err := io.Copy(io.Discard, Metered(t.Context(), input, 4, lease))
		if IsMemory(err) != test.refused || lease.Refusal() != err || //nolint:errorlint // the same
			!test.refused && n != test.size || b.Used() < test.want-leaseStep || b.Used() > test.want+leaseStep {
			t.Errorf("%s: %d bytes were read, and %d taken; %v", name, n, b.Used(), err)
		}
	}
}
