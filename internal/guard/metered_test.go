package guard

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestMeteredReadersTakeMemoryAsTheyRead(t *testing.T) {
	errNone := errors.New("none")
	for name, test := range map[string]struct {
		size, room, want int64
		err              error
	}{
		"a short input is free": {size: 1000, room: 0, want: 0},
		"a long input":          {size: 1 << 20, room: 8 << 20, want: 3 << 20},
		"no memory":             {size: 8 << 20, room: 8 << 20, err: errNone, want: 8 << 20},
	} {
		taken := int64(0)
		r := Metered(strings.NewReader(strings.Repeat("x", int(test.size))), 4, func(bytes int64) error {
			if taken+bytes > test.room {
				return errNone
			}
			taken += bytes
			return nil
		})
		n, err := io.Copy(io.Discard, r)
		if !errors.Is(err, test.err) || test.err == nil && (n != test.size || taken < test.want) ||
			taken > test.want+meterStep {
			t.Errorf("%s: %d bytes were read, and %d taken; %v", name, n, taken, err)
		}
	}
}
