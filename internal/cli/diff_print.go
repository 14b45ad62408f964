package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// changePrinter prints the changes that a comparison found, and counts them.
type changePrinter struct {
	*env
	changes int // that were printed
}

// summarize returns the result of the comparison.
func (c *changePrinter) summarize() error {
	if c.changes > 0 {
		return differencef("%s would change", excerpt.Count(c.changes, "object"))
	}
	c.Done("no changes")
	return nil
}

// compare prints what an apply would change.
func (c *changePrinter) compare(ctx context.Context, target *apply.Cluster, req apply.Request) error {
	planned, err := target.Diff(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range planned {
		c.print(p)
	}
	return nil
}

// print prints how an object would change, if it would.
func (c *changePrinter) print(p apply.Change) {
	mark, colour := "", ""
	switch p.Action {
	case apply.Created:
		mark, colour = "+", term.Green
	case apply.Configured:
		mark, colour = "~", term.Yellow
	case apply.Deleted:
		mark, colour = "-", term.Red
	default:
		return
	}
	c.Clear()
	c.changes++
	fmt.Fprintln(c.Out, c.Out.Paint(colour, fmt.Sprintf("%s %s %s", mark, p.Ref, p.Action)))
	if p.Action == apply.Configured && p.Diff == "" {
		fmt.Fprintln(c.Out, "    no value changes: the fields that kubectl set get another field manager")
	}
	for _, line := range strings.Split(p.Diff, "\n") {
		if line != "" {
			fmt.Fprintln(c.Out, c.Out.Paint(diffColours[line[0]], "    "+line))
		}
	}
}

// diffColours are the colours of the lines of a diff, by their first character.
var diffColours = map[byte]string{'+': term.Green, '-': term.Red, '~': term.Yellow}
