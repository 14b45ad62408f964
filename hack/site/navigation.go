package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// section is a heading of docs/README.md with the rows of its table.
type section struct {
	Name    string
	Entries []entry
}

// entry is a row: what a reader wants to do, and the pages for it.
type entry struct {
	Task  string
	Pages []*link
}

type link struct{ Title, File string }

var (
	sectionHeading = regexp.MustCompile(`^## (.+)$`)
	tableRow       = regexp.MustCompile(`^\| (.+?) \| (.+) \|$`)
	pageLink       = regexp.MustCompile(`\[([^]]+)\]\(([^)#]+)\)`)
)

// readNavigation returns the navigation: the tables of docs/README.md, which lead by tasks.
func readNavigation(root string, pages []*page) ([]section, error) {
	files := map[string]string{}
	for _, p := range pages {
		files[p.source] = p.file
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	if err != nil {
		return nil, err
	}
	var sections []section
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		if h := sectionHeading.FindStringSubmatch(line); h != nil {
			sections = append(sections, section{Name: h[1]})
		}
		row := tableRow.FindStringSubmatch(line)
		if row == nil || len(sections) == 0 {
			continue
		}
		e := entry{Task: row[1]}
		for _, found := range pageLink.FindAllStringSubmatch(row[2], -1) {
			source := path.Join("docs", found[2])
			file, ok := files[source]
			if !ok {
				return nil, fmt.Errorf("docs/README.md: '%s' is not a page", source)
			}
			e.Pages = append(e.Pages, &link{Title: strings.Trim(found[1], "`"), File: file})
		}
		if len(e.Pages) > 0 {
			last := &sections[len(sections)-1]
			last.Entries = append(last.Entries, e)
		}
	}
	return sections, nil
}
