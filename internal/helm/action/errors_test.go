package action

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestWaitingForMemoryIsTransient has the failures of a budget: work that waits may succeed later, and must not use up
// the retries of a release. Work that is too large never succeeds.
func TestWaitingForMemoryIsTransient(t *testing.T) {
	waiting := fault.New(guard.ReasonWaitingForMemory, "rendering needs memory, which other work uses")
	tooLarge := fault.New(guard.ReasonTooLarge, "rendering needs more memory than there is")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{waiting, true},
		{fmt.Errorf("upgrade: %w", fault.New("", "cannot render").Because(waiting)), true},
		{tooLarge, false},
		{errors.New("no"), false},
	} {
		if got := IsTransient(c.err); got != c.want {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}
