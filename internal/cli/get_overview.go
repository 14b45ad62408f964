package cli

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// printSections prints a table for each kind. On a terminal, each fits the screen: columns are left out from the right,
// messages of objects that are Ready are cut, and all others continue in lines of their own.
func (p *objectPrinter) printSections(found []foundObject) error {
	for len(found) > 0 {
		k := found[0].kind
		n := slices.IndexFunc(found, func(f foundObject) bool { return f.kind != k })
		if n < 0 {
			n = len(found)
		}
		if err := p.printSection(k, found[:n]); err != nil {
			return err
		}
		if found = found[n:]; len(found) > 0 {
			fmt.Fprintln(p.out)
		}
	}
	return nil
}

// printSection prints the table of one kind.
func (p *objectPrinter) printSection(k *kind.Kind, found []foundObject) error {
	shown := *k
	if p.overview {
		shown.Columns = slices.DeleteFunc(slices.Clone(k.Columns), func(c kind.Column) bool {
			return c.Detail || c.Optional != "" && !slices.ContainsFunc(found, func(f foundObject) bool {
				return c.Value(f.object, false) != c.Optional
			})
		})
	}
	var rows [][]term.Cell
	if !p.noHeader {
		rows = append(rows, p.header(&shown))
	}
	for _, f := range found {
		rows = append(rows, p.row(foundObject{&shown, f.object}))
	}
	return p.printFitted(term.NewTable(p.out), rows, found)
}

// printFitted prints rows as the screen has room for them: those of objects, and maybe a header before.
func (p *objectPrinter) printFitted(t *term.Table, rows [][]term.Cell, found []foundObject) error {
	fixed := 1 // the name
	if p.allNamespaces {
		fixed++
	}
	rows, room := t.FitScreen(rows, fixed)
	below := make([]string, len(rows))
	if room > 0 {
		for i, row := range rows {
			below[i] = p.cut(row, room, found, i-len(rows)+len(found))
		}
	}
	t.Fit(rows...)
	for i, row := range rows {
		if err := t.Print(row); err != nil {
			return err
		}
		if below[i] != "" {
			fmt.Fprintln(p.out, term.Wrap(below[i], "    ", p.out.Width()))
		}
	}
	return nil
}

// cut shortens the message of a row to its room, and returns what must follow in a line of its own. The row is that of
// an object by its index, or the header.
func (p *objectPrinter) cut(row []term.Cell, room int, found []foundObject, object int) (below string) {
	last := &row[len(row)-1]
	text := last.Text
	if len([]rune(text)) <= room {
		return ""
	}
	if object >= 0 {
		if below = p.detail(found[object], text); below != "" {
			text = p.reason(found[object])
		}
	}
	last.Text = term.Cut(text, room)
	return below
}

// detail returns a message that does not fit its column and must not be cut.
func (p *objectPrinter) detail(f foundObject, message string) string {
	if c := cluster.ReadyCondition(f.object); c != nil && c.Status == metav1.ConditionTrue &&
		!strings.Contains(message, "; ") && f.object.GetDeletionTimestamp() == nil {
		return ""
	}
	return message
}

// reason returns the reason of the Ready condition, for which the message follows in a line of its own.
func (p *objectPrinter) reason(f foundObject) string {
	if c := cluster.ReadyCondition(f.object); c != nil {
		return c.Reason
	}
	return "…"
}
