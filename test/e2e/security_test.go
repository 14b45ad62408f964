package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// namedTest matches a test in a text, as package.TestName or TestName.
var namedTest = regexp.MustCompile(`([a-z0-9]+\.)?Test[A-Z]\w+`)

// The test compares docs/security.md with the existing tests.
func TestSecurityPageNamesExistingTests(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	existing := testsBelow(t, root)
	named := map[string]bool{}
	for _, name := range namedTest.FindAllString(string(page), -1) {
		named[name] = true
		if !existing[name] {
			t.Errorf("docs/security.md: test %s does not exist. Write it as package.TestName", name)
		}
	}
	const least = 50 // proofs on the page
	if len(named) < least {
		t.Errorf("docs/security.md names %d tests", len(named))
	}
}
