package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fluxCommandsLeftOut are the commands of Flux, or flags of them, that sluice does not have.
var fluxCommandsLeftOut = map[string]string{
	"plugin install": "sluice is one binary; see docs/cli.md", "plugin list": "", "plugin search": "",
	"plugin uninstall": "", "plugin update": "",
}

// TestCommandsOfFlux compares commands and flags with those of Flux, which scripts use. It also fails for entries of
// fluxCommandsLeftOut that exist.
func TestCommandsOfFlux(t *testing.T) {
	text, err := os.ReadFile("testdata/flux-commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	root := newTestRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultVersionFlag()
	check := func(what string, exists bool) {
		if _, leftOut := fluxCommandsLeftOut[what]; exists == leftOut {
			t.Errorf("sluice %s exists: %t, and is left out: %t", what, exists, leftOut)
		}
	}
	for line := range strings.Lines(string(text)) {
		path, list, _ := strings.Cut(strings.TrimSpace(line)+" ", " --")
		path = strings.TrimSpace(path)
		words := strings.Fields(path)
		if path == "global" {
			words = nil
		}
		c, rest, err := root.Find(words)
		exists := err == nil && len(rest) == 0 && (c != root || path == "global")
		check(path, exists)
		for flag := range strings.FieldsSeq(list) {
			if flag = strings.TrimPrefix(flag, "--"); exists {
				check(path+" --"+flag, hasFlag(c, flag))
			}
		}
	}
}

func hasFlag(c *cobra.Command, name string) bool {
	c.InitDefaultHelpFlag()
	return slices.ContainsFunc([]*pflag.FlagSet{c.Flags(), c.InheritedFlags(), c.PersistentFlags()},
		func(f *pflag.FlagSet) bool { return f.Lookup(name) != nil })
}

// TestHelpListsOwnFlagsFirst checks that flags which a command shares with its siblings are not among the global ones.
func TestHelpListsOwnFlagsFirst(t *testing.T) {
	help := run(t, "get", "ks", "--help").wants(t, exitOK).out
	if !strings.Contains(help, "--watch") || !strings.Contains(help, "--show-source") ||
		strings.Contains(help, "--kubeconfig") || !strings.Contains(help, `Use "sluice options"`) {
		t.Errorf("the help mixes flags:\n%s", help)
	}
	global := run(t, "options").wants(t, exitOK).out
	if strings.Contains(global, "--watch") || !strings.Contains(global, "--kubeconfig") {
		t.Errorf("the options mix flags:\n%s", global)
	}
	for line := range strings.Lines(help + global) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > helpWidth {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	examples, usage := strings.Index(help, "Examples:\n"), strings.Index(help, "Usage:\n")
	if examples < 0 || usage < examples || strings.Count(help, "Examples:") != 1 {
		t.Errorf("the help does not begin with examples:\n%s", help)
	}
	if strings.Contains(run(t, "--help").wants(t, exitOK).out, "sluice options\" for") {
		t.Error("the help of the root command has the flags already")
	}
}

func TestVersionFlag(t *testing.T) {
	if r := run(t, "--version").wants(t, exitOK); !strings.HasPrefix(r.out, "sluice: dev") {
		t.Errorf("--version prints %q", r.out)
	}
}

// TestNamespaceFlagMeansOneThing checks that no command has another meaning for -n or --namespace.
func TestNamespaceFlagMeansOneThing(t *testing.T) {
	for _, c := range commands(newTestRoot()) {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "namespace" || f.Shorthand == "n" {
				t.Errorf("%s has a flag --%s of its own", c.CommandPath(), f.Name)
			}
		})
	}
}
