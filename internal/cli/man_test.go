package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	run(t, "man", "--output", dir).wants(t, exitOK, "manual pages in "+dir)
	page, err := os.ReadFile(filepath.Join(dir, "sluice-get-kustomizations.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"--show-source", "SEE ALSO", ".SH EXAMPLE", "sluice get kustomizations"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page does not contain %q:\n%.2000s", text, page)
		}
	}
	run(t, "man").wants(t, exitUsage, "--output is missing")
}
