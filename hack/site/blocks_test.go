package site

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

var update = flag.Bool("update", false, "write the counts of blocks into docs/design/documentation.md")

// What tests do with a block of code.
const (
	applied = "applied" // to an API server
	ran     = "run"     // as it is, by the test of its page
	checked = "checked" // commands of sluice: run up to their first request
	notRun  = "not run" // marked, with the reason
	output  = "text"    // neither a command nor a manifest
)

// block is a block of code of a page.
type block struct {
	page, language, reason, content string
	line                            int
}

// blocks returns the blocks of code of a page. Indented blocks have the language "indented".
func (p *page) blocks() []block {
	var found []block
	p.walk(func(n ast.Node) {
		b := block{page: pageName(p.source), language: "indented"}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			if b.language = "text"; n.Info != nil {
				b.language, b.reason, _ = strings.Cut(string(n.Info.Value(p.content)), " ")
			}
		case *ast.CodeBlock:
		default:
			return
		}
		if n.Lines().Len() > 0 {
			b.content = string(n.Lines().Value(p.content))
			b.line = strings.Count(string(p.content[:n.Lines().At(0).Start]), "\n") + 1
			found = append(found, b)
		}
	})
	return found
}

// pageName returns the path of a page relative to docs, as tests of pages name it.
func pageName(source string) string {
	if name, isInDocs := strings.CutPrefix(source, "docs/"); isInDocs {
		return name
	}
	return "../" + source
}

var (
	mark       = regexp.MustCompile(`^not-run: (.+)$`)
	onlySluice = regexp.MustCompile(`^(?:sluice [^\n]*\n|#[^\n]*\n|\n)+$`)
)

// classOf returns what tests do with a block, or "" if none knows it.
func classOf(b block) string {
	_, isTested := tested[b.page+" "+b.language]
	commands := strings.ReplaceAll(strings.TrimRight(b.content, "\n")+"\n", "\\\n", "")
	switch {
	case mark.MatchString(b.reason):
		return notRun
	case b.reason != "":
		return ""
	case isTested:
		return ran
	case b.language == "yaml":
		return applied
	case b.language == "text" || b.language == "console" || b.language == "json":
		return output
	case b.page == "cli-reference.md":
		return checked // usage lines and examples, which are written from the commands
	case onlySluice.MatchString(commands):
		return checked
	}
	return ""
}

// TestEveryBlockIsTestedOrMarked finds blocks of code that no test knows, and compares the published counts.
func TestEveryBlockIsTestedOrMarked(t *testing.T) {
	classes, reasons, counts := map[string]int{}, map[string]int{}, map[string]int{}
	for _, p := range readPages(t) {
		if p.source == "CHANGELOG.md" {
			continue
		}
		for _, b := range p.blocks() {
			class := classOf(b)
			classes[class]++
			switch class {
			case notRun:
				reasons[strings.TrimPrefix(b.reason, "not-run: ")]++
			case ran:
				counts[b.page+" "+b.language]++
			case "":
				t.Errorf("%s:%d: no test runs this block of '%s'. Add the test to hack/site/tested_test.go, or write "+
					"the reason into the first line of the block: ```%[3]s not-run: needs GitHub", p.source, b.line,
					b.language)
			}
		}
	}
	for key, of := range tested {
		if counts[key] != of.blocks {
			t.Errorf("%s: the page has %d blocks, and hack/site/tested_test.go names %d. Check that %s runs all, and "+
				"correct the number", key, counts[key], of.blocks, of.test)
		}
		checkTest(t, key, of.test)
	}
	comparePublished(t, table(classes, reasons))
}

// checkTest checks that a test exists, and that its file names the page.
func checkTest(t *testing.T, key, test string) {
	t.Helper()
	file, name, _ := strings.Cut(test, ":")
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Error(err)
		return
	}
	page, _, _ := strings.Cut(key, " ")
	if !strings.Contains(string(content), "func "+name+"(t *testing.T)") {
		t.Errorf("%s: %s has no test %s", key, file, name)
	}
	if !strings.Contains(string(content), page+`"`) {
		t.Errorf("%s: %s does not name the page", key, file)
	}
}

// table returns the counts as a table. Numbers that change with each example are rounded down, so that only marks
// change the page.
func table(classes, reasons map[string]int) string {
	const step = 10
	var b strings.Builder
	b.WriteString("| blocks | what tests do with them |\n|---|---|\n")
	for _, row := range []struct{ class, meaning string }{
		{class: applied, meaning: "manifests that an API server accepts, with strict validation"},
		{class: ran, meaning: "commands and files that the test of the page runs or builds"},
		{class: checked, meaning: "commands of `sluice`, run up to their first request to a cluster or host"},
		{class: output, meaning: "text, such as output and layouts of directories"},
	} {
		fmt.Fprintf(&b, "| %d or more | %s |\n", classes[row.class]/step*step, row.meaning)
	}
	fmt.Fprintf(&b, "| **%d** | marked as not run |\n", classes[notRun])
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "| %d of these | %s |\n", reasons[reason], reason)
	}
	return b.String()
}

const (
	countsBegin = "<!-- counts of blocks: begin -->\n"
	countsEnd   = "<!-- counts of blocks: end -->\n"
)

func comparePublished(t *testing.T, want string) {
	t.Helper()
	file := filepath.Join(root, "docs", "design", "documentation.md")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(content), countsBegin)
	got, after, found := strings.Cut(rest, countsEnd)
	if !found {
		t.Fatalf("%s has no place for the counts", file)
	}
	if got == want {
		return
	}
	if !*update {
		t.Errorf("docs/design/documentation.md has other counts. Run go test . -update in hack/site. The counts:\n%s",
			want)
		return
	}
	if err := os.WriteFile(file, []byte(before+countsBegin+want+countsEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
