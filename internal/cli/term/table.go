package term

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// columnGap is the number of spaces between columns.
const columnGap = 3

// Cell is one field of a table. Colour is optional.
type Cell struct{ Text, Colour string }

// Row returns cells without colours.
func Row(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// Table prints rows in aligned columns. Columns only get wider, so rows printed later stay aligned with earlier ones.
type Table struct {
	out     *Screen
	widths  []int
	removed int // columns that the screen has no room for
}

// NewTable returns an empty table.
func NewTable(out *Screen) *Table { return &Table{out: out} }

// Fit makes the columns as wide as the rows need, without printing them.
func (t *Table) Fit(rows ...[]Cell) {
	for _, row := range rows {
		for i, c := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(Printable(c.Text)))
		}
	}
}

// Width returns the number of cells that the first columns take.
func (t *Table) Width(columns int) int {
	width := 0
	for _, w := range t.widths[:columns] {
		width += w + columnGap
	}
	return width
}

const (
	// minLast is the width of the narrowest last column, which has messages.
	minLast = 24
	// lastColumns is the number of columns on the right that stay on every screen.
	lastColumns = 2
)

// FitScreen removes columns of rows until the last one has room for a message, on a terminal only: what a pipe gets is
// complete. Columns go from the right, but never the last two, nor the first ones that fixed counts. It returns the
// remaining rows, and how many cells the last column has; 0 if it has no limit.
func (s *Screen) FitScreen(rows [][]Cell, fixed int) (fitted [][]Cell, room int) {
	return NewTable(s).FitScreen(rows, fixed)
}

// FitScreen does the same for rows that follow others of the table: columns that were removed stay removed.
func (t *Table) FitScreen(rows [][]Cell, fixed int) (fitted [][]Cell, room int) {
	if !t.out.terminal || len(rows) == 0 {
		return rows, 0
	}
	for range t.removed {
		rows = withoutColumn(rows)
	}
	for {
		room = t.out.Width() - t.widthBefore(rows)
		if room >= minLast || len(t.widths) > 0 || len(rows[0]) <= fixed+lastColumns {
			return rows, max(room, minLast)
		}
		rows = withoutColumn(rows)
		t.removed++
	}
}

// withoutColumn returns rows without the column before the last ones.
func withoutColumn(rows [][]Cell) [][]Cell {
	var shorter [][]Cell
	for _, row := range rows {
		n := len(row) - lastColumns
		shorter = append(shorter, slices.Delete(slices.Clone(row), n-1, n))
	}
	return shorter
}

// widthBefore returns the width of all columns except the last one, once rows are printed.
func (t *Table) widthBefore(rows [][]Cell) int {
	with := Table{widths: slices.Clone(t.widths)}
	with.Fit(rows...)
	return with.Width(max(len(with.widths)-1, 0))
}

// Print writes rows. Control characters are removed: texts of objects must not change the state of the terminal.
func (t *Table) Print(rows ...[]Cell) error {
	t.Fit(rows...)
	var b strings.Builder
	for _, row := range rows {
		for i, c := range row {
			text := Printable(c.Text)
			b.WriteString(t.out.Paint(c.Colour, text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(text)+columnGap))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// PrintMessages prints rows whose last cells are messages, which may have several lines. A pipe gets one line for each
// row. On a terminal, a message that does not fit behind the other cells is below them, broken between words.
func (t *Table) PrintMessages(rows ...[]Cell) error {
	last := len(rows[0]) - 1
	for _, row := range rows {
		t.Fit(row[:last])
	}
	for _, row := range rows {
		lines := strings.Split(strings.TrimSpace(row[last].Text), "\n")
		row[last].Text = OneLine(strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": "))
		fits := len(lines) == 1 && t.Width(last)+utf8.RuneCountInString(row[last].Text) <= t.out.Width()
		if !t.out.terminal || fits {
			if err := t.Print(row); err != nil {
				return err
			}
			continue
		}
		if err := t.Print(row[:last]); err != nil {
			return err
		}
		for _, line := range lines {
			indent := "    " + line[:len(line)-len(strings.TrimLeft(line, " "))]
			if _, err := io.WriteString(t.out, Wrap(line, indent, t.out.Width())+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
}
