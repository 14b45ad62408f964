package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var topicRow = regexp.MustCompile("(?m)^\\| (.+) \\| (`.+`) \\|$")

// The test compares docs/kustomization-topics.md with the existing tests and, if available, with the list of topics.
func TestKustomizationTopicsHaveTests(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "kustomization-topics.md"))
	if err != nil {
		t.Fatal(err)
	}
	existing := testsBelow(t, root)
	topics := map[string]bool{}
	for _, row := range topicRow.FindAllStringSubmatch(string(page), -1) {
		topics[row[1]] = true
		for _, name := range strings.Split(row[2], ", ") {
			if name = strings.Trim(name, "`"); !existing[name] {
				t.Errorf("%s: test %s does not exist", row[1], name)
			}
		}
	}
	const least = 80 // rows of the table
	if len(topics) < least {
		t.Errorf("found %d topics", len(topics))
	}
	list, err := os.ReadFile(filepath.Join(root, "..", "shared", "SURFACE.md"))
	if os.IsNotExist(err) {
		t.Log("../shared/SURFACE.md does not exist: completeness of the topics was not checked")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(list), "- **kustomizations** (")
	line, _, _ = strings.Cut(line, "\n")
	_, line, _ = strings.Cut(line, "): ")
	for _, topic := range strings.Split(line, "; ") {
		if !topics[topic] {
			t.Errorf("no test for topic %q", topic)
		}
	}
}

// testsBelow returns the tests of all packages, as package.TestName.
func testsBelow(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[strings.TrimSuffix(f.Name.Name, "_test")+"."+fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
