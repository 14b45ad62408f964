package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// changePrinter prints the changes that a comparison found, and counts them.
type changePrinter struct {
	*env
	changes int // that were printed
}

// summarize returns the result of the comparison.
func (c *changePrinter) summarize() error {
	if c.changes > 0 {
		return differencef("%s would change", countObjects(c.changes))
	}
	c.Done("no changes")
	return nil
}

// countObjects returns a number of objects in words that agree.
func countObjects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
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
