package testenv

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Blocks returns the code blocks of a language in a page of docs, in their order.
func Blocks(tb testing.TB, page, language string) []string {
	tb.Helper()
	block := regexp.MustCompile("(?s)```" + regexp.QuoteMeta(language) + "\n(.*?)```")
	var blocks []string
	for _, found := range block.FindAllStringSubmatch(Page(tb, page), -1) {
		blocks = append(blocks, found[1])
	}
	return blocks
}

// Page returns the text of a page of docs.
func Page(tb testing.TB, page string) string {
	tb.Helper()
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		tb.Fatal(err)
	}
	return string(content)
}
