package rollout

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// TestKubeConfigsThatNeedMuchMemory has kubeconfigs of less than 1 MiB, as a tenant may write them into a Secret.
func TestKubeConfigsThatNeedMuchMemory(t *testing.T) {
	bomb := "a: &a " + strings.Repeat("x", 400_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	_, _, err := (&RemoteClusters{}).parse(t.Context(), []byte(bomb))
	if err == nil || !strings.Contains(err.Error(), "its aliases stand for more than 4 MiB of text") {
		t.Errorf("the error is %.300v", err)
	}
	ctx := guard.WithBudget(t.Context(), guard.NewBudget(16<<20))
	dense := "a: [" + strings.Repeat("0,", 400_000) + "]\n"
	if _, _, err := (&RemoteClusters{}).parse(ctx, []byte(dense)); !guard.IsMemory(err) {
		t.Errorf("the error is %.300v", err)
	}
}
