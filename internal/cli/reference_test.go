package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referencePage = "../../docs/cli-reference.md"

// checkReference compares docs/cli-reference.md with the commands, or writes it with -update.
func checkReference(t *testing.T) {
	t.Helper()
	root := newTestRoot()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString("# Commands and flags\n\nAfter this page you know each command, its flags and examples. " +
		"[The command line](cli.md) leads through them.\nThis page and the manual pages of `sluice man` are written " +
		"from the commands themselves.\n\n## Flags of all commands\n\n")
	writeFlags(&b, root.PersistentFlags())
	for _, c := range commands(root)[1:] {
		if c.Hidden || c.HasSubCommands() && c.Name() != "get" && !c.HasLocalFlags() {
			continue // a group, whose commands follow
		}
		writeCommand(&b, c)
	}
	if *update {
		if err := os.WriteFile(referencePage, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != b.String() {
		t.Error("docs/cli-reference.md is not up to date: run go test ./internal/cli -run TestCommandsHaveHelp -update")
	}
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	use := strings.TrimSuffix(c.UseLine(), " [flags]")
	fmt.Fprintf(b, "## %s\n\n%s.\n\n    %s\n\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."), use)
	if c.Long != "" && c.Name() != "completion" && c.Parent().Name() != "completion" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(c.Long))
	}
	if c.Example != "" {
		b.WriteString("```sh\n")
		for line := range strings.Lines(c.Example) {
			b.WriteString(strings.TrimPrefix(strings.TrimRight(line, "\n"), "  ") + "\n")
		}
		b.WriteString("```\n\n")
	}
	if c.Name() == "controller" {
		b.WriteString("Its flags are in [flags](flags.md).\n\n")
		return
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = true
	add := func(f *pflag.Flag) {
		if c.Root().PersistentFlags().Lookup(f.Name) != f && f.Name != "help" && !f.Hidden {
			own.AddFlag(f)
		}
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	writeFlags(b, own)
}

// writeFlags writes a table of flags, or nothing if there are none.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace
	rows := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if rows++; rows == 1 {
			b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		value := ""
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			value = "`" + strings.ReplaceAll(f.DefValue, homeOf(), "$HOME") + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, cell(value), cell(f.Usage))
	})
	if rows > 0 {
		b.WriteString("\n")
	}
}

// homeOf returns the home directory, which defaults of some flags contain.
func homeOf() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "no home directory" // defaults contain none then
	}
	return home
}
