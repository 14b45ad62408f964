package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// cell is one field of a table; its colour is left out where there are none.
type cell struct{ text, colour string }

// table prints rows in aligned columns. Widths only grow, so that rows that come one by one stay below the first.
type table struct {
	out    *screen
	widths []int
}

func (t *table) print(rows ...[]cell) error {
	for _, row := range rows {
		for i, c := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, c := range row {
			b.WriteString(t.out.paint(c.colour, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c.text)+3))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}
