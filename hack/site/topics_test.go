package site

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
)

var topicRow = regexp.MustCompile("(?m)^\\| (.+) \\| (`.+`) \\|$")

// namedTest matches a test in a text, as package.TestName or TestName.
var namedTest = regexp.MustCompile(`([a-z0-9]+\.)?Test[A-Z]\w+`)

// The test compares docs/kustomization-topics.md with the existing tests and, if available, with the list of topics.
func TestKustomizationTopicsHaveTests(t *testing.T) {
	existing := existingTests(t)
	topics := map[string]bool{}
	for _, row := range topicRow.FindAllStringSubmatch(read(t, "docs/kustomization-topics.md"), -1) {
		topics[row[1]] = true
		for name := range strings.SplitSeq(row[2], ", ") {
			if name = strings.Trim(name, "`"); !existing[name] {
				t.Errorf("%s: test %s does not exist", row[1], name)
			}
		}
	}
	const least = 80 // rows of the table
	if len(topics) < least {
		t.Errorf("found %d topics", len(topics))
	}
	const list = "../shared/SURFACE.md"
	if _, err := os.Stat(filepath.Join(root, list)); os.IsNotExist(err) {
		t.Log(list + " does not exist: completeness of the topics was not checked")
		return
	}
	_, line, _ := strings.Cut(read(t, list), "- **kustomizations** (")
	line, _, _ = strings.Cut(line, "\n")
	_, line, _ = strings.Cut(line, "): ")
	for topic := range strings.SplitSeq(line, "; ") {
		if !topics[topic] {
			t.Errorf("no test for topic %q", topic)
		}
	}
}

// The test compares docs/security.md with the existing tests.
func TestSecurityPageNamesExistingTests(t *testing.T) {
	existing := existingTests(t)
	named := map[string]bool{}
	for _, name := range namedTest.FindAllString(read(t, "docs/security.md"), -1) {
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

// read returns the text of a file, by its path in the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// existingTests returns the tests of all packages, as package.TestName.
func existingTests(t *testing.T) map[string]bool {
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
