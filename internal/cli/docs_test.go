package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// documentedCommand matches commands of sluice in pages: in a line of their own, and between backticks.
var documentedCommand = regexp.MustCompile("(?m)^(?:    )?sluice ([a-z-].*)$|`sluice ([a-z-][^`]*)`")

// TestDocumentedCommandsExist checks the words and the flags of each command in the pages. Tests of the pages run many
// of them; this test also finds wrong ones among those that cannot be run.
func TestDocumentedCommandsExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	root := newTestRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(content), "\\\n", "")
		for _, found := range documentedCommand.FindAllStringSubmatch(text, -1) {
			if problem := checkCommand(root, found[1]+found[2]); problem != "" {
				t.Errorf("%s: sluice %s: %s", filepath.Base(page), found[1]+found[2], problem)
			}
			checked++
		}
	}
	const least = 250
	if checked < least {
		t.Errorf("checked %d commands", checked)
	}
}

// nested matches commands in the arguments of a command.
var nested = regexp.MustCompile(`\$\([^)]*\)`)

// rendering matches the command that sluice render runs.
var rendering = regexp.MustCompile(`--exec '[^']*'`)

// endOfCommand matches what ends a command in a line of a shell.
var endOfCommand = regexp.MustCompile(`(\s#|\s?[|>;)]|\s&&|\s\|\|).*$`)

// word matches words of commands, unlike placeholders such as NAME, and names such as ks/app.
var word = regexp.MustCompile(`^[a-z][a-z-]*$`)

// checkCommand returns what is wrong with a command, or "".
func checkCommand(root *cobra.Command, text string) string {
	c, isGroup := root, true
	text = rendering.ReplaceAllString(text, "--exec")
	for _, arg := range strings.Fields(endOfCommand.ReplaceAllString(nested.ReplaceAllString(text, "x"), "")) {
		arg = strings.Trim(arg, "[],.")
		name, isFlag := strings.CutPrefix(arg, "--")
		switch sub := subcommand(c, arg); {
		case isFlag:
			isGroup = false
			name, _, _ = strings.Cut(name, "=")
			if name != "" && c.Name() != "controller" && !hasFlag(c, name) { // controller parses its flags itself
				return "unknown flag --" + name
			}
		case isGroup && sub != nil:
			c = sub
		case isGroup && c.HasSubCommands() && word.MatchString(arg) && (c.Name() != "help"):
			return "unknown command " + arg
		default:
			isGroup = false
		}
	}
	return ""
}

func subcommand(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}
	return nil
}
