package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed theme
var theme embed.FS

var layout = template.Must(template.ParseFS(theme, "theme/page.html"))

// validVersion is what a version may be called: it is the name of a directory.
var validVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// build writes the site of a version and returns the number of pages. Other versions in out stay.
func build(root, out, version string) (int, error) {
	if !validVersion.MatchString(version) || version == "index.html" {
		return 0, fmt.Errorf("'%s' is not a name for a version: use letters, digits, '.', '_' and '-'", version)
	}
	pages, err := findPages(root)
	if err != nil {
		return 0, err
	}
	pages = append(pages, &page{source: "docs/design", file: "design/index.html"})
	files, assets := map[string]string{}, map[string]string{"LICENSE": "LICENSE.txt"}
	for _, p := range pages {
		files[p.source] = p.file
	}
	target := func(source string) (string, bool) {
		if file, ok := files[source]; ok {
			return file, true
		}
		if rest, ok := strings.CutPrefix(source, "docs/images/"); ok {
			assets[source] = "images/" + rest
		}
		file, ok := assets[source]
		return file, ok
	}
	design := pages[len(pages)-1]
	for _, p := range pages {
		if p != design {
			if err := p.render(root, target); err != nil {
				return 0, err
			}
		}
	}
	listDesign(design, pages)
	navigation, err := readNavigation(root, pages)
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(out, version)
	if err := os.RemoveAll(dir); err != nil { // pages that no longer exist
		return 0, err
	}
	for _, p := range pages {
		if err := write(dir, p, navigation, version); err != nil {
			return 0, err
		}
	}
	for source, file := range assets {
		if err := copyFile(filepath.Join(root, source), filepath.Join(dir, file)); err != nil {
			return 0, err
		}
	}
	return len(pages), writeShared(out, dir, pages)
}

// listDesign fills the page that lists the pages about the design.
func listDesign(design *page, pages []*page) {
	design.title = "Design"
	var b strings.Builder
	b.WriteString("<h1 id=\"design\">Design</h1>\n<p>These pages are for people who change the code.</p>\n<ul>\n")
	for _, p := range pages {
		if path.Dir(p.file) == "design" && p != design {
			fmt.Fprintf(&b, "<li><a href=\"%s\">%s</a></li>\n", path.Base(p.file), template.HTMLEscapeString(p.title))
		}
	}
	b.WriteString("</ul>\n")
	design.body = []byte(b.String())
}

// write writes a page with the navigation around it.
func write(dir string, p *page, navigation []section, version string) error {
	base := strings.Repeat("../", strings.Count(p.file, "/"))
	var b bytes.Buffer
	err := layout.Execute(&b, map[string]any{
		"Title": p.title, "Body": template.HTML(p.body), "Base": base, "File": p.file, "Navigation": navigation,
		"Version": version,
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, filepath.FromSlash(p.file)), b.Bytes())
}

// writeShared writes the files that pages refer to, and those of all versions.
func writeShared(out, dir string, pages []*page) error {
	for _, name := range []string{"style.css", "script.js"} {
		content, err := fs.ReadFile(theme, "theme/"+name)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	type entry struct{ File, Page, ID, Heading, Text string }
	var index []entry
	for _, p := range pages {
		for _, s := range p.parts {
			index = append(index, entry{File: p.file, Page: p.title, ID: s.ID, Heading: s.Heading,
				Text: strings.Join(strings.Fields(s.Text), " ")})
		}
	}
	// Scripts work from a directory as well, where browsers do not fetch other files.
	if err := writeScript(filepath.Join(dir, "search.js"), "searchIndex", index); err != nil {
		return err
	}
	versions, err := writeVersions(out)
	if err != nil {
		return err
	}
	to := versions[0] + "/index.html"
	return writeFile(filepath.Join(out, "index.html"), []byte(`<!doctype html><html lang="en"><meta charset="utf-8">`+
		`<title>Sluice</title><meta http-equiv="refresh" content="0; url=`+to+`">`+
		`<a href="`+to+`">Documentation</a></html>`))
}

// writeVersions writes the list of versions and their pages, and returns the versions.
func writeVersions(out string) ([]string, error) {
	versions, err := versionsIn(out)
	if err != nil {
		return nil, err
	}
	type version struct {
		Name  string
		Pages []string
	}
	var list []version
	for _, name := range versions {
		pages, err := pagesOf(filepath.Join(out, name))
		if err != nil {
			return nil, err
		}
		list = append(list, version{Name: name, Pages: pages})
	}
	return versions, writeScript(filepath.Join(out, "versions.js"), "versions", list)
}

func writeScript(name, variable string, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeFile(name, []byte("window."+variable+" = "+string(encoded)+";\n"))
}

// versionsIn returns the versions in the directory of a site: releases first, newest first, then others.
func versionsIn(out string) ([]string, error) {
	entries, err := os.ReadDir(out)
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, e := range entries {
		if e.IsDir() {
			versions = append(versions, e.Name())
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return compareVersions(b, a) })
	return versions, nil
}

// pagesOf returns the pages of a version.
func pagesOf(dir string) ([]string, error) {
	pages := []string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".html" {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		pages = append(pages, filepath.ToSlash(rel))
		return err
	})
	return pages, err
}

var number = regexp.MustCompile(`\d+`)

// compareVersions compares names of versions by their numbers. Those without a number are the lowest, and a
// pre-release is lower than its release.
func compareVersions(a, b string) int {
	coreA, preA, _ := strings.Cut(a, "-")
	coreB, preB, _ := strings.Cut(b, "-")
	x, y := numbers(coreA), numbers(coreB)
	if c := slices.Compare(x, y); c != 0 {
		return c
	}
	if (preA == "") != (preB == "") {
		if preA == "" {
			return 1
		}
		return -1
	}
	if c := slices.Compare(numbers(preA), numbers(preB)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func numbers(s string) []uint64 {
	var found []uint64
	for _, n := range number.FindAllString(s, -1) {
		var v uint64
		for _, digit := range n {
			v = v*10 + uint64(digit-'0')
		}
		found = append(found, v)
	}
	return found
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, content)
}

func writeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}
