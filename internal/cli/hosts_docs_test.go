package cli

import (
	"slices"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestHostPages runs each command of the pages about git hosts, in the order of the page.
func TestHostPages(t *testing.T) {
	_, namespace := withDefinitions(t)
	for _, page := range []string{"github.md", "gitlab.md", "gitea.md", "bitbucket.md", "azure-devops.md"} {
		commands := testenv.Commands(t, page)
		for _, args := range commands {
			if i := slices.Index(args, "app.pem"); i >= 0 {
				args[i] = rsaKey(t)
			}
			at(t, append(args, "-n", namespace)...).wants(t, exitOK)
		}
		if len(commands) < 2 {
			t.Errorf("docs/%s has %d commands", page, len(commands))
		}
	}
}
