package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// tables are printed when all is measured, for people; the lines of the benchmarks are for machines.
var tables []*table

// table is what a scenario came to.
type table struct {
	title string
	rows  [][]string // the first is its head
}

func newTable(title string, head ...string) *table {
	t := &table{title, [][]string{head}}
	tables = append(tables, t)
	return t
}

// row adds a line, and with -v shows it at once: a run that is stopped is then not for nothing. Numbers get
// three digits or, from a hundred on, all.
func (t *table) row(cells ...any) {
	var row []string
	for _, c := range cells {
		f, ok := c.(float64)
		switch {
		case !ok:
			row = append(row, fmt.Sprint(c))
		case f >= 100:
			row = append(row, fmt.Sprintf("%.0f", f))
		default:
			row = append(row, fmt.Sprintf("%.3g", f))
		}
	}
	t.rows = append(t.rows, row)
	if testing.Verbose() {
		fmt.Fprintf(os.Stderr, "%s: %s: %s\n", t.title, strings.Join(t.rows[0], " | "), strings.Join(row, " | "))
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, t := range tables {
		fmt.Printf("\n%s\n", t.title)
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, r := range t.rows {
			fmt.Fprintln(w, "  "+strings.Join(r, "\t"))
		}
		if err := w.Flush(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}
