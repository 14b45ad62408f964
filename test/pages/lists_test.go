package pages

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// elsewhere are the pages that name hosts of the internet or need an installation of Flux. Their tests, which
// hack/site/tested_test.go names, put local servers in their place.
var elsewhere = []string{"air-gap.md", "bootstrap.md", "migrate-from-flux.md"}

// examples are the directories below examples, by the test that runs them.
var examples = map[string]string{"fleet": "TestFleet", "istio": "TestDemo", "pipeline": "TestDemo",
	"promotion": "TestExampleOfPromotion", "review": "TestExamplesOfPages",
	"preview-environments": "TestExamplesOfPages", "renderers": "TestRenderersPage", "webapp": "TestDemo"}

var (
	taskLink = regexp.MustCompile(`\]\(([\w-]+\.md)[#)]`)
	indented = regexp.MustCompile(`(?m)^ {4,}(sluice|kubectl|git|helm|playground) .*$`)
	toRun    = regexp.MustCompile("(?m)^ *```(?:sh|shell|bash)$")
	notToRun = regexp.MustCompile("(?m)^ *```(?:sh|shell|bash) not-run: .+$")
)

// TestEveryPageOfTasksIsRun finds pages of tasks that no list names. Commands of such a page are in blocks of sh, and a
// block that is not run says why in its first line, which hack/site counts.
func TestEveryPageOfTasksIsRun(t *testing.T) {
	listed := map[string]int{}
	lists := [][]string{alone, guides, installations, slices.Collect(maps.Keys(kinds)), elsewhere}
	for _, list := range lists {
		for _, page := range list {
			if listed[page]++; listed[page] > 1 {
				t.Errorf("docs/%s is in two lists", page)
			}
			testenv.Page(t, page)
		}
	}
	_, table, _ := strings.Cut(testenv.Page(t, "README.md"), "\n## Tasks\n")
	table, _, _ = strings.Cut(table, "\n## ")
	tasks, blocks, excluded := map[string]bool{}, 0, 0
	for _, link := range taskLink.FindAllStringSubmatch(table, -1) {
		page := link[1]
		if tasks[page] {
			continue
		}
		tasks[page] = true
		text := testenv.Page(t, page)
		for _, command := range indented.FindAllString(text, -1) {
			if !inFence(text, command) {
				t.Errorf("docs/%s: write the command as a block of sh, so that a test runs it: %s", page, command)
			}
		}
		n := len(toRun.FindAllString(text, -1))
		blocks, excluded = blocks+n, excluded+len(notToRun.FindAllString(text, -1))
		if n > 0 && listed[page] == 0 {
			t.Errorf("docs/%s has %d blocks of commands, and no list in test/pages names it", page, n)
		}
	}
	const least = 30
	if len(tasks) < least {
		t.Errorf("docs/README.md has %d pages of tasks", len(tasks))
	}
	t.Logf("%d pages of tasks have %d blocks of commands that run, and %d that do not", len(tasks), blocks, excluded)
}

// inFence reports whether a line is inside of a block between backticks.
func inFence(page, line string) bool {
	before, _, _ := strings.Cut(page, line+"\n")
	return strings.Count("\n"+before, "```")%2 == 1
}

// TestEveryExampleIsRun finds directories of examples that no test runs.
func TestEveryExampleIsRun(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if examples[e.Name()] == "" {
			t.Errorf("no test runs examples/%s: add it to the list", e.Name())
		}
	}
	if len(entries) != len(examples) {
		t.Errorf("%d examples exist, and %d are listed", len(entries), len(examples))
	}
}
