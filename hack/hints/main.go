// Command hints reports the hints of faults that no test mentions. A hint tells an operator what to do next, so a test
// must trigger its case and assert its text. Usage: hints [-all] DIRECTORY...
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// exempt are the directories whose code is not part of the product.
var exempt = []string{"internal/testenv", "internal/text/fault"}

func main() {
	all := flag.Bool("all", false, "list all hints, with how many tests of their package and of others mention them")
	flag.Parse()
	hints, err := survey(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	missing := 0
	for _, h := range hints {
		if !h.tested() {
			missing++
		}
		if *all {
			fmt.Printf("%s: %d %d %s\n", h.position, h.near, h.far, h.text)
		} else if !h.tested() {
			fmt.Printf("%s: no test mentions the hint %q\n", h.position, h.part)
		}
	}
	if *all {
		fmt.Printf("%d hints, %d without a test\n", len(hints), missing)
	} else if missing > 0 {
		os.Exit(1)
	}
}

// hint is one text of the product that says what to do next.
type hint struct {
	position  token.Position
	text      string // with %s for what is known only at run time
	part      string // the part that a test must mention
	near, far int    // how many texts of tests of the same directory, and of others, mention it
}

// distinct is the number of bytes from which a part of a hint is so distinct that any test may mention it. A shorter
// one, such as "Set both keys", must be mentioned in its own package.
const distinct = 30

func (h hint) tested() bool { return h.near > 0 || h.far > 0 && len(h.part) >= distinct }

// survey returns the hints in the files below the directories, in order, with the number of tests that mention them.
func survey(dirs []string) ([]hint, error) {
	var hints []hint
	tests := map[string][]string{} // texts of tests by directory
	for _, dir := range dirs {
		if err := walk(dir, func(dir string, files []string) error {
			p, err := parsePackage(files)
			if err != nil {
				return err
			}
			hints = append(hints, p.hints()...)
			tests[dir] = append(tests[dir], p.testTexts()...)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	for i := range hints {
		count(&hints[i], tests)
	}
	return hints, nil
}

// count counts the texts of tests that mention a hint.
func count(h *hint, tests map[string][]string) {
	for dir, texts := range tests {
		for _, t := range texts {
			switch {
			case !strings.Contains(t, h.part):
			case dir == filepath.Dir(h.position.Filename):
				h.near++
			default:
				h.far++
			}
		}
	}
}

// walk calls f for each directory below dir that contains Go files.
func walk(dir string, f func(dir string, files []string) error) error {
	byDir := map[string][]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.ContainsFunc(exempt, func(e string) bool {
			slashed := filepath.ToSlash(name)
			return slashed == e || strings.HasSuffix(slashed, "/"+e) || d.Name() == "testdata"
		}) {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, ".go") {
			byDir[filepath.Dir(name)] = append(byDir[filepath.Dir(name)], name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	dirs := make([]string, 0, len(byDir))
	for dir := range byDir {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		if err := f(dir, byDir[dir]); err != nil {
			return err
		}
	}
	return nil
}

// verb is a verb of package fmt.
var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0]*[\d.]*[a-zA-Z]`)

// longestPart returns the longest part of a text between verbs, without spaces around it.
func longestPart(text string) string {
	longest := ""
	for part := range strings.SplitSeq(verb.ReplaceAllString(text, "\x00"), "\x00") {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	return strings.ReplaceAll(longest, "%%", "%")
}

// isHintName reports whether a variable, parameter or function of this name is a hint.
func isHintName(name string) bool {
	return name == "hint" || strings.HasSuffix(name, "Hint")
}

// nameOf returns the last name of an identifier or a selector.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
