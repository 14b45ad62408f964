package apply

import (
	"context"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

func TestAPanicWhileOneObjectIsAppliedIsItsError(t *testing.T) {
	done := make([]bool, 3)
	problems := each(context.Background(), 2, []int{0, 1, 2}, func(_ context.Context, i int) error {
		if i == 1 {
			panic("oh")
		}
		done[i] = true
		return nil
	})
	if len(problems) != 3 || problems[0] != nil || !guard.IsPanic(problems[1]) || problems[2] != nil || !done[2] {
		t.Errorf("the errors are %v", problems)
	}
}
