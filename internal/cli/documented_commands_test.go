package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	// fencedCommand matches a command in a line of its own, and blockCommand also one in an indented block.
	fencedCommand = regexp.MustCompile(`(?m)^sluice ([a-z-].*)$`)
	blockCommand  = regexp.MustCompile(`(?m)^(?:    )?sluice ([a-z-].*)$`)

	// shellWord matches a word of a shell, with its quotes, and quoted the parts in quotes.
	shellWord = regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
	quoted    = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	variable  = regexp.MustCompile(`\$\{?\w+\}?`)
	endOfLine = regexp.MustCompile(`^(?:[#>|;]|&&)`)

	// remoteHost matches the hosts of URLs and images, which a test must not reach.
	remoteHost = regexp.MustCompile(`(://(?:\w+@)?|\s|=)((?:[a-z0-9-]+\.)+(?:com|io|internal|org))([/:])`)
	// placeholder matches what a reader replaces.
	placeholder = regexp.MustCompile(`…|<\w+>|(?:^| )[A-Z]{3,}(?: |$)`)
	// noLogin matches the usage error of commands that need a token or a password of the reader.
	noLogin = regexp.MustCompile(`no token: |no password: |set a token of `)
)

// documentedCommands returns the commands of a page.
func documentedCommands(t *testing.T, page string) []string {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	pattern := blockCommand
	if page == referencePage {
		pattern = fencedCommand // the indented lines are the syntax
	}
	var commands []string
	for _, found := range pattern.FindAllStringSubmatch(strings.ReplaceAll(string(content), "\\\n", ""), -1) {
		commands = append(commands, found[1])
	}
	return commands
}

// arguments returns the arguments of a command as a shell does, with hosts that refuse connections. It returns none for
// commands that a reader must complete, and for those that would run long or try hosts again.
func arguments(text string) []string {
	text = variable.ReplaceAllString(nested.ReplaceAllString(text, "x"), "x")
	text = remoteHost.ReplaceAllString(text, "${1}127.0.0.1:1${3}")
	var args []string
	for _, word := range shellWord.FindAllString(text, -1) {
		if endOfLine.MatchString(word) {
			break
		}
		args = append(args, quoted.ReplaceAllString(word, "$1$2"))
	}
	switch args[0] {
	case "controller", "ui", "mcp", "mirror", "help", "completion":
		return nil
	}
	if placeholder.MatchString(strings.Join(args, " ")) {
		return nil
	}
	return append(args, "--server", "https://127.0.0.1:1", "--timeout", "2s")
}

// TestDocumentedCommandsAreAccepted runs the commands of the pages and the examples of the help up to their first
// request: the cluster and all hosts refuse connections. No command may find a mistake in its flags or arguments.
func TestDocumentedCommandsAreAccepted(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{} // by their text, with a page
	for _, page := range append(pages, "../../README.md") {
		for _, command := range documentedCommands(t, page) {
			commands[command] = filepath.Base(page)
		}
	}
	t.Setenv("HOME", t.TempDir())
	for _, variable := range []string{"GITHUB_TOKEN", "GITLAB_TOKEN", "GITEA_TOKEN", "BITBUCKET_TOKEN", "GIT_PASSWORD",
		"SLUICE_GIT_TOKEN"} {
		t.Setenv(variable, "")
	}
	t.Chdir(t.TempDir())
	ran := 0
	for text, page := range commands {
		args := arguments(text)
		if args == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r := runWith(ctx, "", args...)
		cancel()
		if r.code == exitUsage && strings.Contains(r.err, "► See sluice") && !noLogin.MatchString(r.err) {
			t.Errorf("%s: sluice %s: %s", page, text, r.err)
		}
		ran++
	}
	const least = 280
	if ran < least {
		t.Errorf("ran %d commands", ran)
	}
}
