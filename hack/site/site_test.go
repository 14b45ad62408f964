package main

import (
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golangci/misspell"
)

const root = "../.."

// builtSite returns the HTML pages of a site by path.
func builtSite(t *testing.T) (dir string, pages map[string]string) {
	t.Helper()
	out := t.TempDir()
	if _, err := build(root, out, "main"); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(out, "main")
	pages = map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".html") {
			return err
		}
		content, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		pages[filepath.ToSlash(rel)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, pages
}

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	anchor    = regexp.MustCompile(` id="([^"]*)"`)
	headingOf = regexp.MustCompile(`<h([1-6])[ >]`)
	picture   = regexp.MustCompile(`<img [^>]*>`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	dir, pages := builtSite(t)
	checked := 0
	for file, content := range pages {
		for _, found := range reference.FindAllStringSubmatch(content, -1) {
			u, err := url.Parse(html.UnescapeString(found[1]))
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue // the test opens no connection
			}
			checked++
			if problem := follow(dir, pages, file, u); problem != "" {
				t.Errorf("%s: the link '%s' %s", file, found[1], problem)
			}
		}
	}
	const least = 2500 // navigation included
	if checked < least {
		t.Errorf("checked %d links", checked)
	}
}

// follow returns what is wrong with a link of a page, or "".
func follow(dir string, pages map[string]string, file string, u *url.URL) string {
	if strings.HasPrefix(u.Path, "/") {
		return "is not relative"
	}
	to := file
	if u.Path != "" {
		to = path.Join(path.Dir(file), u.Path)
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(to))); err != nil {
		return "leads to no file"
	}
	if u.Fragment != "" && !slices.Contains(idsOf(pages[to]), u.Fragment) {
		return "leads to no heading"
	}
	return ""
}

func idsOf(content string) []string {
	var found []string
	for _, id := range anchor.FindAllStringSubmatch(content, -1) {
		found = append(found, id[1])
	}
	return found
}

// TestPagesAreAccessible checks what does not need a browser: landmarks, headings, names and unique IDs.
func TestPagesAreAccessible(t *testing.T) {
	_, pages := builtSite(t)
	for file, content := range pages {
		for _, part := range []string{`<html lang="en">`, `<main id="content"`, `<nav aria-label=`, `href="#content"`,
			`<header>`, `<footer>`, `<label for="search">`, `<label for="version">`, `name="viewport"`} {
			if strings.Count(content, part) != 1 {
				t.Errorf("%s has %s %d times", file, part, strings.Count(content, part))
			}
		}
		seen := map[string]bool{}
		for _, id := range idsOf(content) {
			if seen[id] {
				t.Errorf("%s has the ID '%s' twice", file, id)
			}
			seen[id] = true
		}
		_, article, _ := strings.Cut(content, "<article")
		level, ones := 0, 0
		for _, h := range headingOf.FindAllStringSubmatch(article, -1) {
			is := int(h[1][0] - '0')
			if is > level+1 {
				t.Errorf("%s has a heading of level %d after one of level %d", file, is, level)
			}
			if level = is; is == 1 {
				ones++
			}
		}
		if ones != 1 {
			t.Errorf("%s has %d headings of level 1", file, ones)
		}
		for _, img := range picture.FindAllString(content, -1) {
			if !regexp.MustCompile(`alt="[^"]+"`).MatchString(img) {
				t.Errorf("%s: an image has no text: %s", file, img)
			}
		}
		if strings.Contains(content, "raw HTML omitted") {
			t.Errorf("%s has HTML that the site cannot show", file)
		}
	}
}

// TestEveryPageIsInTheNavigation checks that docs/README.md leads to each page of docs.
func TestEveryPageIsInTheNavigation(t *testing.T) {
	_, pages := builtSite(t)
	_, navigation, _ := strings.Cut(pages["index.html"], "<nav")
	navigation, _, _ = strings.Cut(navigation, "</nav>")
	for file := range pages {
		if !strings.Contains(file, "/") && file != "index.html" && !strings.Contains(navigation, `href="`+file+`"`) &&
			!slices.Contains(slices.Collect(maps.Values(topPages)), file) {
			t.Errorf("no table of docs/README.md leads to %s", file)
		}
	}
}

func TestSpelling(t *testing.T) {
	pages, err := findPages(root)
	if err != nil {
		t.Fatal(err)
	}
	r := misspell.New() // knows common misspellings, without those that are only British
	for _, p := range pages {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.source)))
		if err != nil {
			t.Fatal(err)
		}
		if _, found := r.Replace(string(content)); len(found) > 0 {
			for _, d := range found {
				t.Errorf("%s:%d: '%s' is a misspelling of '%s'", p.source, d.Line, d.Original, d.Corrected)
			}
		}
	}
}

func TestVersions(t *testing.T) {
	out := t.TempDir()
	for _, version := range []string{"v1.9.0", "v1.10.0", "v1.10.0-rc.1", "main"} {
		if err := os.MkdirAll(filepath.Join(out, version), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	versions, err := versionsIn(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(versions), "[v1.10.0 v1.10.0-rc.1 v1.9.0 main]"; got != want {
		t.Errorf("the versions are %s, want %s", got, want)
	}
	for _, name := range []string{"", "..", "a/b", "-x", "index.html"} {
		if _, err := build(root, out, name); err == nil {
			t.Errorf("%q is accepted as a version", name)
		}
	}
}

func TestDeadLinksAreRefused(t *testing.T) {
	p := &page{source: "docs/a.md", file: "a.html"}
	if to, err := p.resolve([]byte("missing.md"), func(string) (string, bool) { return "", false }); err == nil {
		t.Errorf("became %s", to)
	}
}
