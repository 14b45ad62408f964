package sandbox

import (
	"path/filepath"
	"testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintOfAProcessThatCannotStart(t *testing.T) {
	_, err := start(Options{Executable: filepath.Join(t.TempDir(), "none")})
	if f := fault.As(err); f == nil || f.Hint != "Check the limits of processes and memory of this container" {
		t.Errorf("got %v", err)
	}
}
