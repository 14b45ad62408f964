package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/text/explain"
)

func newExplainCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [CODE|REASON]",
		Short: "Explain a code or a reason of a message: cause, check and cure",
		Long: `Messages about failures end with a code, such as (SLU-1101). This command
prints what it means, without a network. Without an argument, it lists all
codes.`,
		Example: `  sluice explain SLU-1101
  sluice explain GitOperationFailed`,
		Args: atMostOne,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return e.listExplanations()
			}
			entry, ok := explain.Find(args[0])
			if !ok {
				return usagef("nothing is known about %q: run sluice explain to list all codes and reasons", args[0])
			}
			fmt.Fprintf(e.Out, "%s %s\n", entry.Code, entry.Reason)
			for _, paragraph := range entry.Plain() {
				fmt.Fprintf(e.Out, "\n%s\n", wrapped(paragraph, helpWidth))
			}
			return nil
		},
		ValidArgsFunction: completeExplanations,
	}
}

// listExplanations prints all codes with their reasons.
func (e *env) listExplanations() error {
	rows := [][]term.Cell{term.Row("CODE", "REASON")}
	for _, entry := range explain.All() {
		rows = append(rows, term.Row(entry.Code, entry.Reason))
	}
	return term.NewTable(e.Out).Print(rows...)
}

// completeExplanations completes codes and reasons.
func completeExplanations(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, entry := range explain.All() {
		if strings.HasPrefix(entry.Code, strings.ToUpper(prefix)) {
			found = append(found, cobra.CompletionWithDesc(entry.Code, entry.Reason))
		}
		if strings.HasPrefix(entry.Reason, prefix) {
			found = append(found, cobra.CompletionWithDesc(entry.Reason, entry.Code))
		}
	}
	slices.Sort(found)
	return found, cobra.ShellCompDirectiveNoFileComp
}

// wrapped breaks a text of one line into lines of at most width characters, except for longer words.
func wrapped(text string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch n := len([]rune(word)); {
		case column == 0:
			column = n
		case column+1+n > width:
			b.WriteByte('\n')
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}
