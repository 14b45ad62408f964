package cli

import (
	"os"
	"strings"
	"testing"
)

// TestHostPages runs each command of the pages about git hosts, in the order of the page.
func TestHostPages(t *testing.T) {
	_, namespace := withDefinitions(t)
	fill := strings.NewReplacer("app.pem", rsaKey(t), `"$TOKEN"`, "the-token")
	for _, host := range []string{"github", "gitlab", "gitea", "bitbucket", "azure-devops"} {
		page, err := os.ReadFile("../../docs/" + host + ".md")
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for line := range strings.Lines(string(page)) {
			if command, ok := strings.CutPrefix(line, "    sluice "); ok {
				at(t, append(strings.Fields(fill.Replace(command)), "-n", namespace)...).wants(t, exitOK)
				count++
			}
		}
		if count < 2 {
			t.Errorf("docs/%s.md has %d commands", host, count)
		}
	}
}
