package wire

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestAHostThatHangsIsLeftAlone(t *testing.T) {
	now := time.Unix(0, 0)
	h := hosts{now: func() time.Time { return now }}
	enter := func(address string) func(bool) {
		t.Helper()
		done, err := h.enter(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	for _, rest := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		enter("slow:22")(true)
		_, err := h.enter(t.Context(), "slow:22")
		if f := fault.As(err); f == nil || f.RetryAfter != rest || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("got %v, want a rest of %s", err, rest)
		}
		enter("other:22")(false)
		now = now.Add(rest)
	}
	enter("slow:22")(false)
	enter("slow:22")(true)
	if f := fault.As(second(h.enter(t.Context(), "slow:22"))); f == nil || f.RetryAfter != leastRest {
		t.Errorf("one answer did not make up for the past: %v", f)
	}
}

func TestConversationsOfAHostAreBounded(t *testing.T) {
	h := hosts{now: time.Now}
	var last func(bool)
	for range perHost {
		var err error
		if last, err = h.enter(t.Context(), "busy:22"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.enter(ctx, "busy:22"); err == nil {
		t.Error("one more was let in")
	}
	last(false)
	last(false) // once is enough
	done, err := h.enter(t.Context(), "busy:22")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.enter(ctx, "busy:22"); err == nil {
		t.Error("who left twice made room for two")
	}
	done(false)
}

func second[A, B any](_ A, b B) B { return b }
