package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// last are the packages whose full tests take minutes or measure time, the shortest first. Each runs alone, after those
// of all others, which run at once as those of make test do.
var last = []string{"hack/release", "test/e2e", "test/campaign"}

// fullTests are the tests of a package that only run in full.
type fullTests struct {
	dir   string
	tests []string
}

// runFull runs the tests that only run in full, until one fails or end sends that the time ended. It begins with the
// package of this number: as the time may not suffice, CI begins with another one each day.
func runFull(ctx context.Context, root string, env []string, number int, end <-chan time.Time, s *summary) error {
	packages, err := findFull(root)
	if err != nil || len(packages) == 0 {
		return err
	}
	number %= len(packages)
	packages = slices.Concat(packages[number:], packages[:number])
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-end:
			cancel()
		case <-limited.Done():
		}
	}()
	env = append(slices.Clone(env), "SLUICE_TEST_FULL=1", "SLUICE_DIFFERENTIAL=full")
	s.stopped = func() bool { return limited.Err() != nil }
	for _, together := range groups(packages) {
		args := []string{"-count=1", "-timeout", "2h", "-failfast"}
		var tests []string
		for _, p := range together {
			tests = append(tests, p.tests...)
		}
		args = append(args, "-run", "^("+strings.Join(tests, "|")+")$")
		for _, p := range together {
			args = append(args, "./"+p.dir)
		}
		err = run{dir: ".", env: env, args: args}.start(limited, root, s)
		if err != nil && len(s.failed) > 0 || ctx.Err() != nil {
			return err
		}
		if limited.Err() != nil {
			printNotRun(s, packages)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// groups divides packages into those that run at once.
func groups(packages []fullTests) [][]fullTests {
	var divided [][]fullTests
	for i, p := range packages {
		if i == 0 || slices.Contains(last, p.dir) || slices.Contains(last, packages[i-1].dir) {
			divided = append(divided, nil)
		}
		divided[len(divided)-1] = append(divided[len(divided)-1], p)
	}
	return divided
}

// printNotRun prints the tests that did not end in time.
func printNotRun(s *summary, packages []fullTests) {
	s.printf("\nThe time ended. Not run, or not to the end:\n")
	for _, p := range packages {
		for _, test := range p.tests {
			ended := false
			for name := range s.passed {
				ended = ended || strings.HasSuffix(name, "/"+p.dir+" "+test)
			}
			if !ended {
				s.printf("  %s  %s\n", test, p.dir)
			}
		}
	}
}

// findFull returns the packages with tests that only run in full, in the order to run them.
func findFull(root string) ([]fullTests, error) {
	byDir := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dir, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if skipped := d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "bin" ||
			dir != "." && strings.HasPrefix(d.Name(), "."); skipped {
			return fs.SkipDir
		}
		if dir != "." {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return fs.SkipDir
			}
		}
		tests, err := fullTestsOf(path)
		if len(tests) > 0 {
			byDir[dir] = tests
		}
		return err
	})
	var found []fullTests
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		found = append(found, fullTests{dir: dir, tests: byDir[dir]})
	}
	slices.SortStableFunc(found, func(a, b fullTests) int {
		return slices.Index(last, a.dir) - slices.Index(last, b.dir)
	})
	return found, err
}

// fullTestsOf returns the tests of a directory that depend on whether they run in full, by themselves or through what
// they call, in the order of the files.
func fullTestsOf(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	uses, full := map[string]map[string]bool{}, map[string]bool{} // by name of a declaration
	var tests []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			for _, declared := range namesOf(d) {
				if uses[declared] == nil {
					uses[declared] = map[string]bool{}
				}
				full[declared] = full[declared] || inspect(d, uses[declared])
				if strings.HasPrefix(declared, "Test") || strings.HasPrefix(declared, "Fuzz") {
					tests = append(tests, declared)
				}
			}
		}
	}
	for again := true; again; {
		again = false
		for declared, used := range uses {
			for other := range used {
				if full[other] && !full[declared] {
					full[declared], again = true, true
				}
			}
		}
	}
	return slices.DeleteFunc(tests, func(test string) bool { return !full[test] || test == "TestMain" }), nil
}

// namesOf returns the names that a declaration declares. A method has its own name only.
func namesOf(d ast.Decl) []string {
	if f, ok := d.(*ast.FuncDecl); ok {
		return []string{f.Name.Name}
	}
	var names []string
	for _, spec := range d.(*ast.GenDecl).Specs {
		if values, ok := spec.(*ast.ValueSpec); ok {
			for _, name := range values.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// inspect adds the identifiers of a declaration to used, and reports whether it asks whether tests run in full.
func inspect(d ast.Decl, used map[string]bool) bool {
	full := false
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			full = full || ok && x.Name == "testenv" && (n.Sel.Name == "Full" || n.Sel.Name == "IsFull")
		case *ast.Ident:
			used[n.Name] = true
		case *ast.BasicLit:
			full = full || n.Value == fmt.Sprintf("%q", "SLUICE_DIFFERENTIAL") ||
				n.Value == fmt.Sprintf("%q", "SLUICE_TEST_FULL")
		}
		return true
	})
	return full
}
