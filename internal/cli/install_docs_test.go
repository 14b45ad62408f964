package cli

import (
	"os"
	"strings"
	"testing"
)

// TestInstallPage runs each command of docs/install.md, in its order.
func TestInstallPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	without(t)
	count := 0
	for line := range strings.Lines(string(page)) {
		if command, ok := strings.CutPrefix(line, "    sluice "); ok {
			at(t, strings.Fields(command)...).wants(t, exitOK)
			count++
		}
	}
	if count < 5 {
		t.Errorf("the page has %d commands", count)
	}
}
