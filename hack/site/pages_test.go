// Package site contains the documentation as a site: VitePress builds it, and these tests check its pages.
package site

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golangci/misspell"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

const (
	root  = "../.."
	index = "docs/README.md"
)

// topPages are the pages of the repository outside of docs. The configuration of VitePress names them, too.
var topPages = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
	"MAINTAINERS.md", "CODE_OF_CONDUCT.md"}

// page is a Markdown file of the site.
type page struct {
	source  string // path in the repository, such as docs/gate.md
	content []byte
	doc     ast.Node
	ids     []string // of its headings
}

// markdown reads pages as git hosts do: with tables, and with an ID for each heading.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

var comment = regexp.MustCompile(`(?m)^<!--.*-->\n`)

// readPages returns the pages by path.
func readPages(t *testing.T) map[string]*page {
	t.Helper()
	sources := slices.Clone(topPages)
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			rel, _ := filepath.Rel(root, name)
			sources = append(sources, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]*page{}
	for _, source := range sources {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(source)))
		if err != nil {
			t.Fatal(err)
		}
		p := &page{source: source, content: comment.ReplaceAll(content, []byte("\n"))}
		p.doc = markdown.Parser().Parse(text.NewReader(p.content), parser.WithContext(parser.NewContext(
			parser.WithIDs(&ids{}))))
		p.walk(func(n ast.Node) {
			if h, ok := n.(*ast.Heading); ok {
				id, _ := h.AttributeString("id")
				name, _ := id.([]byte)
				p.ids = append(p.ids, string(name))
			}
		})
		pages[source] = p
	}
	return pages
}

func (p *page) walk(visit func(ast.Node)) {
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(n)
		}
		return ast.WalkContinue, nil
	})
}

// ids gives headings the IDs that git hosts give them; the configuration of VitePress does the same.
type ids struct{ used map[string]int }

var notInID = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// Generate returns the ID of a heading.
func (i *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(notInID.ReplaceAllString(strings.ToLower(strings.TrimSpace(string(value))), ""), " ", "-")
	if i.used == nil {
		i.used = map[string]int{}
	}
	n := i.used[id]
	i.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put records an ID that is written in the page.
func (i *ids) Put([]byte) {}

func TestLinksLeadSomewhere(t *testing.T) {
	pages := readPages(t)
	checked := 0
	for _, p := range pages {
		p.walk(func(n ast.Node) {
			var to string
			switch n := n.(type) {
			case *ast.Link:
				to = string(n.Destination)
			case *ast.Image:
				to = string(n.Destination)
			default:
				return
			}
			u, err := url.Parse(to)
			if err != nil {
				t.Errorf("%s: %v", p.source, err)
				return
			}
			if u.Scheme != "" || u.Host != "" {
				return // the test opens no connection
			}
			checked++
			if problem := follow(pages, p, u); problem != "" {
				t.Errorf("%s: the link '%s' %s", p.source, to, problem)
			}
		})
	}
	const least = 550
	if checked < least {
		t.Errorf("checked %d links", checked)
	}
}

// follow returns what is wrong with a link of a page; empty if it leads to a file, and to a heading if it names one.
func follow(pages map[string]*page, p *page, u *url.URL) string {
	if strings.HasPrefix(u.Path, "/") {
		return "is not relative"
	}
	to := p.source
	if u.Path != "" {
		to = path.Join(path.Dir(p.source), u.Path)
	}
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
		return "leads to no file"
	}
	if u.Fragment != "" && (pages[to] == nil || !slices.Contains(pages[to].ids, u.Fragment)) {
		return "leads to no heading"
	}
	return ""
}

func TestDeadLinksAreFound(t *testing.T) {
	pages := readPages(t)
	for link, want := range map[string]string{
		"missing.md": "leads to no file", "gate.md#missing": "leads to no heading", "/gate.md": "is not relative",
		"gate.md": "", "../LICENSE": "", "#missing": "leads to no heading",
	} {
		u, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		if got := follow(pages, pages[index], u); got != want {
			t.Errorf("%s: got %q, want %q", link, got, want)
		}
	}
}

// TestHeadingsAndPictures checks what readers with a screen reader need, and that a page contains no HTML.
func TestHeadingsAndPictures(t *testing.T) {
	for _, p := range readPages(t) {
		level, ones := 0, 0
		p.walk(func(n ast.Node) {
			switch n := n.(type) {
			case *ast.Heading:
				if n.Level > level+1 {
					t.Errorf("%s has a heading of level %d after one of level %d", p.source, n.Level, level)
				}
				if level = n.Level; level == 1 {
					ones++
				}
			case *ast.Image:
				if n.FirstChild() == nil {
					t.Errorf("%s: the image %s has no text", p.source, n.Destination)
				}
			case *ast.HTMLBlock, *ast.RawHTML:
				t.Errorf("%s has HTML, which the site would take for its own", p.source)
			}
		})
		if ones != 1 {
			t.Errorf("%s has %d headings of level 1", p.source, ones)
		}
	}
}

// TestEveryPageIsInTheNavigation checks that a table of the index, from which the side bar is made, leads to each page.
func TestEveryPageIsInTheNavigation(t *testing.T) {
	pages := readPages(t)
	listed := map[string]bool{index: true}
	pages[index].walk(func(n ast.Node) {
		if l, ok := n.(*ast.Link); ok {
			to, _, _ := strings.Cut(string(l.Destination), "#")
			listed[path.Join("docs", to)] = true
		}
	})
	for source := range pages {
		if path.Dir(source) == "docs" && !listed[source] {
			t.Errorf("no table of %s leads to %s", index, source)
		}
	}
}

func TestSpelling(t *testing.T) {
	r := misspell.New() // knows common misspellings, without those that are only British
	for _, p := range readPages(t) {
		if _, found := r.Replace(string(p.content)); len(found) > 0 {
			for _, d := range found {
				t.Errorf("%s:%d: '%s' is a misspelling of '%s'", p.source, d.Line, d.Original, d.Corrected)
			}
		}
	}
}
