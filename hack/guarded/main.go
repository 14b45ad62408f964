// Command guarded reports code that can end the process by a panic in a goroutine: whatever starts goroutines outside
// of internal/guard. Usage: guarded DIRECTORY...
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// instead is what to use instead of the members of packages. An empty member stands for the whole package.
var instead = map[string]map[string]string{
	"golang.org/x/sync/errgroup":        {"": "guard.Group"},
	"golang.org/x/sync/singleflight":    {"": "guard.Flight"},
	"sync":                              {"WaitGroup": "guard.WaitGroup"},
	"time":                              {"AfterFunc": "guard.AfterFunc"},
	"context":                           {"AfterFunc": "guard.AfterDone"},
	"k8s.io/apimachinery/pkg/util/wait": {"Group": "guard.Group", "Forever": "guard.Go"},
	"k8s.io/client-go/util/workqueue":   {"ParallelizeUntil": "guard.Group"},
}

// guardedArguments are the methods whose last argument runs in a goroutine of a library, and what must wrap it.
var guardedArguments = map[string]string{"AddEventHandler": "EventHandler", "IndexField": "Indexer"}

// exempt are the directories whose code is not part of the product.
var exempt = []string{"internal/guard", "internal/testenv", "internal/source/sourcetest",
	"internal/artifact/backendtest"}

func main() {
	var problems []string
	for _, dir := range os.Args[1:] {
		found, err := checkDirectory(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		problems = append(problems, found...)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// checkDirectory checks the Go files below a directory, without tests.
func checkDirectory(dir string) (problems []string, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		if d.IsDir() {
			for _, e := range exempt {
				if slashed == e || strings.HasSuffix(slashed, "/"+e) {
					return filepath.SkipDir
				}
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found, err := check(slashed, source)
		problems = append(problems, found...)
		return err
	})
	return problems, err
}

// check returns the problems of one file.
func check(name string, source []byte) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, errors.Join(errors.New("cannot parse the file"), err)
	}
	c := checker{files: files, imports: map[string]string{}}
	for _, i := range file.Imports {
		c.addImport(i)
	}
	ast.Inspect(file, c.visit)
	return c.problems, nil
}

// checker collects the problems of one file.
type checker struct {
	files    *token.FileSet
	imports  map[string]string // paths by local name
	problems []string
}

func (c *checker) addImport(i *ast.ImportSpec) {
	imported, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		return
	}
	local := path.Base(imported)
	if i.Name != nil {
		local = i.Name.Name
	}
	c.imports[local] = imported
	if better := instead[imported][""]; better != "" {
		c.report(i, "import of %s: use %s", imported, better)
	} else if local == "." && instead[imported] != nil {
		c.report(i, "import of all names of %s: use its name", imported)
	}
}

func (c *checker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n, "go statement: use guard.Go")
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			if better := instead[c.imports[x.Name]][n.Sel.Name]; better != "" {
				c.report(n, "%s.%s: use %s", x.Name, n.Sel.Name, better)
			}
		}
	case *ast.CallExpr:
		c.checkArguments(n)
	}
	return true
}

// checkArguments reports a function for a goroutine of a library that is not wrapped.
func (c *checker) checkArguments(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	wrapper := guardedArguments[method.Sel.Name]
	last := call.Args[len(call.Args)-1]
	if method.Sel.Name == "Add" && isManager(method.X) && !isServer(last) {
		wrapper = "Runnable"
	}
	if wrapper == "" {
		return
	}
	if last, ok := last.(*ast.CallExpr); ok {
		if f, ok := last.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == wrapper {
			return
		}
	}
	c.report(call, "%s: wrap its last argument in guard.%s", method.Sel.Name, wrapper)
}

// isManager reports whether an expression is a manager of controller-runtime, by its name.
func isManager(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "mgr"
	case *ast.SelectorExpr:
		return x.Sel.Name == "mgr"
	}
	return false
}

// isServer reports whether an expression is &ctrlmanager.Server{}: a manager stops servers last, by their type. Their
// handlers are guarded.
func isServer(x ast.Expr) bool {
	address, ok := x.(*ast.UnaryExpr)
	if !ok {
		return false
	}
	literal, ok := address.X.(*ast.CompositeLit)
	if !ok {
		return false
	}
	named, ok := literal.Type.(*ast.SelectorExpr)
	return ok && named.Sel.Name == "Server"
}

func (c *checker) report(n ast.Node, format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf("%s: %s", c.files.Position(n.Pos()), fmt.Sprintf(format, args...)))
}
