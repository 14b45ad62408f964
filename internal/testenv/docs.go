package testenv

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// word is an argument of a command: a text in double quotes, or one without spaces.
var word = regexp.MustCompile(`"([^"]*)"|[^\s"]+`)

// Commands returns the arguments of the indented sluice commands in a page of docs, in their order, without comments.
func Commands(tb testing.TB, page string) [][]string {
	tb.Helper()
	var commands [][]string
	for line := range strings.Lines(Page(tb, page)) {
		command, ok := strings.CutPrefix(line, "    sluice ")
		if !ok {
			continue
		}
		command, _, _ = strings.Cut(command, " # ")
		var args []string
		for _, w := range word.FindAllString(command, -1) {
			args = append(args, strings.Trim(w, `"`))
		}
		commands = append(commands, args)
	}
	return commands
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
