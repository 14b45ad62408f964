package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// page is a Markdown file and what it becomes.
type page struct {
	source string // path in the repository, such as docs/gate.md
	file   string // path in the site, such as gate.html
	title  string // in plain text
	body   []byte // HTML
	parts  []part
}

// part is a section of a page, for the search.
type part struct {
	ID, Heading, Text string
}

// topPages are the pages of the repository outside of docs, with their paths in the site.
var topPages = map[string]string{
	"README.md": "readme.html", "ARCHITECTURE.md": "architecture.html", "CONTRIBUTING.md": "contributing.html",
	"CHANGELOG.md": "changelog.html", "SECURITY.md": "security-policy.html",
}

// findPages returns the Markdown files of the site in order, without content.
func findPages(root string) ([]*page, error) {
	var pages []*page
	for _, source := range slices.Sorted(maps.Keys(topPages)) {
		pages = append(pages, &page{source: source, file: topPages[source]})
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".md") {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		source := filepath.ToSlash(rel)
		file := strings.TrimSuffix(strings.TrimPrefix(source, "docs/"), ".md") + ".html"
		if path.Base(source) == "README.md" {
			file = path.Join(path.Dir(file), "index.html")
		}
		pages = append(pages, &page{source: source, file: file})
		return nil
	})
	return pages, err
}

// markdown converts pages as GitHub does: with tables, and with an ID for each heading.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// render reads a page and converts it. target returns the path in the site of a path in the repository.
func (p *page) render(root string, target func(source string) (string, bool)) error {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.source)))
	if err != nil {
		return err
	}
	content = comment.ReplaceAll(content, nil)
	context := parser.NewContext(parser.WithIDs(&ids{}))
	doc := markdown.Parser().Parse(text.NewReader(content), parser.WithContext(context))
	var problems []error
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var problem error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, problem = p.resolve(n.Destination, target)
		case *ast.Image:
			n.Destination, problem = p.resolve(n.Destination, target)
		case *ast.Heading:
			p.addPart(n, content)
		default:
			p.addText(n, content)
		}
		if problem != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.source, problem))
		}
		return ast.WalkContinue, nil
	})
	if err = errors.Join(append(problems, err)...); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, content, doc); err != nil {
		return err
	}
	// Keys can scroll what is too wide.
	p.body = focusable.ReplaceAll(b.Bytes(), []byte("$0 tabindex=\"0\""))
	p.body = bytes.ReplaceAll(p.body, []byte("<th></th>"), []byte("<td></td>"))
	p.body = tables.ReplaceAll(p.body, []byte(`<div class="wide" tabindex="0">$0</div>`))
	if p.title == "" {
		return fmt.Errorf("%s has no heading of level 1", p.source)
	}
	return nil
}

var (
	comment   = regexp.MustCompile(`(?m)^<!--.*-->\n`)
	focusable = regexp.MustCompile(`<pre`)
	tables    = regexp.MustCompile(`(?s)<table>.*?</table>`)
)

// resolve returns the destination of a link in the site, relative to the page.
func (p *page) resolve(link []byte, target func(source string) (string, bool)) ([]byte, error) {
	u, err := url.Parse(string(link))
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" {
		return link, err
	}
	source := path.Join(path.Dir(p.source), u.Path)
	file, ok := target(source)
	if !ok {
		return nil, fmt.Errorf("the link '%s' leads to a file that is not part of the site", link)
	}
	rel, err := filepath.Rel(path.Dir(p.file), file)
	if err != nil {
		return nil, err
	}
	u.Path = filepath.ToSlash(rel)
	return []byte(u.String()), nil
}

func (p *page) addPart(h *ast.Heading, content []byte) {
	heading := plain(h, content)
	if h.Level == 1 && p.title == "" {
		p.title = heading
	}
	id, _ := h.AttributeString("id")
	name, _ := id.([]byte)
	p.parts = append(p.parts, part{ID: string(name), Heading: heading})
}

// addText adds the text of a node to the part that it is in.
func (p *page) addText(n ast.Node, content []byte) {
	if len(p.parts) == 0 {
		return
	}
	last := &p.parts[len(p.parts)-1]
	switch n := n.(type) {
	case *ast.Text:
		if n.Parent().Kind() != ast.KindHeading {
			last.Text += string(n.Segment.Value(content)) + " "
		}
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		last.Text += string(n.Lines().Value(content)) + " "
	}
}

// plain returns the text of a node without markup.
func plain(n ast.Node, content []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(content))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// ids gives headings the IDs that GitHub gives them, so that links work in both places.
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
