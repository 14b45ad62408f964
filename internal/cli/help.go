package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wrapSlack is by how many columns pflag exceeds a width to keep the last word on a line.
const wrapSlack = 5

func init() {
	cobra.AddTemplateFunc("ownFlags", func(c *cobra.Command) string { return flagHelp(c, false) })
	cobra.AddTemplateFunc("hasGlobalFlags", func(c *cobra.Command) bool { return flagHelp(c, true) != "" })
}

// globalTemplate is the part of cobra's template for flags of parents.
const globalTemplate = `{{if .HasAvailableInheritedFlags}}

Global Flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}`

// exampleTemplate is the part of cobra's template for examples.
const exampleTemplate = "{{if .HasExample}}\n\nExamples:\n{{.Example}}{{end}}"

// usageTemplate changes cobra's template: examples are first; flags that a command shares with its siblings, such as -A
// of get, are with its own flags, and those of all commands are in "sluice options".
func usageTemplate(cobras string) string {
	return "{{if .HasExample}}Examples:\n{{.Example}}\n\n{{end}}" + strings.NewReplacer(
		exampleTemplate, "",
		"if .HasAvailableLocalFlags", "with ownFlags .",
		".LocalFlags.FlagUsages", ".",
		globalTemplate, "{{if hasGlobalFlags .}}\n\nUse \"sluice options\" for the flags of all commands.{{end}}",
	).Replace(cobras)
}

// flagHelp returns the help of either the global flags or all other flags of a command.
func flagHelp(c *cobra.Command, global bool) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	add := func(f *pflag.Flag) {
		isGlobal := c.HasParent() && c.Root().PersistentFlags().Lookup(f.Name) == f
		if isGlobal == global {
			shown.AddFlag(f)
		}
	}
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return shown.FlagUsagesWrapped(helpWidth - wrapSlack)
}

// newOptionsCommand returns the command that lists the flags of all commands.
func newOptionsCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "options", Short: "List the flags of all commands", Example: "  sluice options", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(e.Out, "The flags of all commands:\n\n"+flagHelp(cmd, true))
			return err
		},
	}
}

// newHelpCommand returns the help command. Cobra's own accepts unknown commands.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show the help of a command", Example: "  sluice help get",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usageError{fmt.Errorf("unknown command %q", strings.Join(args, " "))}
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			c, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, sub := range c.Commands() {
				if strings.HasPrefix(sub.Name(), prefix) && sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
