package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// isReasonName matches the names of constants that are reasons: of conditions, of events, and of the state of gates.
var isReasonName = regexp.MustCompile(`^(Why|event)[A-Z]|^[rR]eason[A-Z]|[a-z]Reason$`)

// isReason matches the values of reasons.
var isReason = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// reasonArgument is the position of the reason in the arguments of functions, by name.
var reasonArgument = map[string]int{"New": 0, "Ready": 0, "Waiting": 0, "Note": 0, "Warn": 0, "WithEvent": 0, "Mark": 3}

// TestEveryReasonHasAnEntry compares the reasons in the code with the entries of docs/troubleshooting.md.
func TestEveryReasonHasAnEntry(t *testing.T) {
	used := reasonsInCode(t)
	for _, reason := range slices.Sorted(maps.Keys(used)) {
		if e, ok := Find(reason); !ok || e.Reason != reason {
			t.Errorf("docs/troubleshooting.md has no entry for the reason %s of %s", reason, used[reason])
		}
	}
	for _, e := range All() {
		if used[e.Reason] == "" {
			t.Errorf("no code uses the reason %s of %s", e.Reason, e.Code)
		}
	}
}

// reasonsInCode returns the reasons in the code of the product, each with a file that has it.
func reasonsInCode(t *testing.T) map[string]string {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, dir := range []string{"api", "internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "testdata" || d.Name() == "testenv" || d.Name() == "explain") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				for _, reason := range reasonsOf(n) {
					found[reason] = name
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// reasonsOf returns the reasons that a constant, a field of a literal, or a call has.
func reasonsOf(n ast.Node) []string {
	var values []ast.Expr
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) && isReasonName.MatchString(name.Name) {
				values = append(values, n.Values[i])
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
			values = append(values, n.Value)
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok {
			i, takesReason := reasonArgument[f.Sel.Name]
			if from, ok := f.X.(*ast.Ident); f.Sel.Name == "New" && (!ok || from.Name != "fault") {
				takesReason = false
			}
			if takesReason && i < len(n.Args) {
				values = append(values, n.Args[i])
			}
		}
	}
	var reasons []string
	for _, v := range values {
		l, ok := v.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			continue // a constant, which is found where it is declared
		}
		if text, err := strconv.Unquote(l.Value); err == nil && isReason.MatchString(text) {
			reasons = append(reasons, text)
		}
	}
	return reasons
}
