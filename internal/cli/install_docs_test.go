package cli

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestInstallPage runs each command of docs/install.md, in its order.
func TestInstallPage(t *testing.T) {
	without(t)
	commands := testenv.Commands(t, "install.md")
	for _, args := range commands {
		at(t, args...).wants(t, exitOK)
	}
	if len(commands) < 5 {
		t.Errorf("the page has %d commands", len(commands))
	}
}
