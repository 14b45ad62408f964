package redact

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestErrorKeepsWhatItIs checks that an error without its secrets has the same chain and attributes.
func TestErrorKeepsWhatItIs(t *testing.T) {
	cause := fmt.Errorf("waiting for hunter2: %w", context.DeadlineExceeded)
	original := fault.New("Progressing", "object 'x' has hunter2").Because(cause).WithHint("Wait for hunter2").
		Passing(time.Minute)
	for name, err := range map[string]error{"fault": original, "wrapped": fmt.Errorf("hunter2: %w", original)} {
		clean := Error(err, "hunt", "hunter2")
		f := fault.As(clean)
		if strings.Contains(clean.Error(), "hunt") || !strings.Contains(clean.Error(), Masked) {
			t.Errorf("%s: %s", name, clean)
		}
		if f == nil || f.Reason != "Progressing" || !f.Temporary || f.RetryAfter != time.Minute ||
			!errors.Is(clean, context.DeadlineExceeded) {
			t.Errorf("%s: it became another error: %+v", name, f)
		}
	}
	if got := Error(original, "other"); got != error(original) { //nolint:errorlint // the very same error
		t.Error("an error without secrets was changed")
	}
	if Error(nil, "x") != nil {
		t.Error("no error became one")
	}
}

// TestQuotedSecretsAreReplaced has messages that quote a secret as Go does, which API servers do.
func TestQuotedSecretsAreReplaced(t *testing.T) {
	for _, secret := range []string{"hunter2", "hun\"ter2", "hun\\ter2", "hunter2\nhunter3\n",
		"hunter\x00\x1b\u202e", "é\xffhunter"} {
		for _, format := range []string{"value: %s", "Invalid value: %q: must not be", "%#v"} {
			if text := Text(fmt.Sprintf(format, secret), secret); strings.Contains(text, "hun") {
				t.Errorf("%q is in %q", secret, text)
			}
		}
	}
}

func TestPlaceholders(t *testing.T) {
	one, two := NewPlaceholders(), NewPlaceholders()
	for value, valid := range map[string]func(string) bool{
		"hunter2": func(s string) bool { return len(s) == 24 },
		"8080":    func(s string) bool { return len(s) < 6 },
		`{"auths":{"r.io":{}}}`: func(s string) bool {
			return strings.HasPrefix(s, `{"`) && !strings.Contains(s, "r.io")
		},
		"":     func(s string) bool { return s == "" },
		"true": func(s string) bool { return s == "true" },
	} {
		p := one.Of("Secret/a/b/c", value)
		if !valid(p) {
			t.Errorf("%q has the placeholder %q", value, p)
		}
		if len(value) < 5 {
			continue
		}
		if one.Of("Secret/a/b/c", value) != p || one.Of("Secret/a/b/d", value) == p ||
			two.Of("Secret/a/b/c", value) == p {
			t.Errorf("%q: a placeholder does not stand for one value of one origin", value)
		}
	}
	for _, value := range []string{"hunter2", "abcdefghijklmnopqrstuvwxy"} {
		if p := Unlike().Of("a", value); strings.ContainsAny(p, value) {
			t.Errorf("the placeholder %q has letters of %q", p, value)
		}
	}
	document := one.Document("Secret/a/b/values.yaml",
		"db: {password: hunter2, port: 5432}\nflags: [x1, x2]\nis: true\n")
	for _, secret := range []string{"hunter2", "5432", "x1"} {
		if strings.Contains(document, secret) {
			t.Errorf("%s is in %s", secret, document)
		}
	}
	if !strings.Contains(document, "password:") || !strings.Contains(document, "is: true") {
		t.Errorf("the structure is lost: %s", document)
	}
}

// TestOnlyThisPackageMasks finds code that has a mask of its own: what hides values uses this package.
func TestOnlyThisPackageMasks(t *testing.T) {
	eachFile(t, func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if ok && l.Kind == token.STRING && strings.Trim(l.Value, "`\"{}") == Masked {
				t.Errorf("%s has the mask %s: use redact.Masked", path, l.Value)
			}
			return true
		})
	})
}

// TestOnlyThisPackageRebuildsFaults finds code that copies a fault from the chain of an error. Whoever returns the copy
// drops the errors around the fault, so that callers do not know what the error is.
func TestOnlyThisPackageRebuildsFaults(t *testing.T) {
	eachFile(t, func(path string, file *ast.File) {
		for _, d := range file.Decls {
			found := map[string]bool{} // variables of the function that are faults
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					call, ok := n.Rhs[0].(*ast.CallExpr)
					if name, isName := n.Lhs[0].(*ast.Ident); ok && isName && isSelector(call.Fun, "fault", "As") {
						found[name.Name] = true
					}
				case *ast.StarExpr:
					if name, ok := n.X.(*ast.Ident); ok && found[name.Name] {
						t.Errorf("%s copies the fault '%s': use redact.Rewrite, which keeps the chain", path, name.Name)
					}
				case *ast.CompositeLit:
					if isSelector(n.Type, "fault", "Fault") {
						t.Errorf("%s builds a fault: use fault.New", path)
					}
				}
				return true
			})
		}
	})
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}

// eachFile calls check for each file of the product but those of this package.
func eachFile(t *testing.T, check func(path string, file *ast.File)) {
	t.Helper()
	files := 0
	for _, root := range []string{"../..", "../../../cmd", "../../../api"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasPrefix(path, "../../text/redact/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files++
			check(path, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("%d files were read", files)
	}
}
