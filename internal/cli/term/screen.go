package term

import (
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Colours, as parameters of the SGR escape sequence.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Grey   = "90"
)

// defaultWidth is the width in cells of a terminal that does not report one.
const defaultWidth = 80

// Screen is an output stream: a terminal, or a file or pipe that gets plain text.
type Screen struct {
	io.Writer
	fd       int
	terminal bool
}

// NewScreen returns a Screen that writes to w.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{Writer: w}
	if f, ok := w.(*os.File); ok {
		s.fd = int(f.Fd())
		s.terminal = term.IsTerminal(s.fd) && os.Getenv("TERM") != "dumb"
	}
	return s
}

// Paint returns text in a colour. It returns the text unchanged if the stream is not a terminal or NO_COLOR
// (https://no-color.org) is set.
func (s *Screen) Paint(colour, text string) string {
	if colour == "" || !s.terminal || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// fit shortens text to the rest of a line after the given number of cells, since a wrapped line cannot be replaced.
func (s *Screen) fit(text string, used int) string {
	width, _, err := term.GetSize(s.fd)
	if err != nil || width <= used+1 {
		width = defaultWidth
	}
	if r := []rune(text); len(r) > width-used-1 {
		return string(r[:width-used-2]) + "…"
	}
	return text
}

// OneLine replaces each run of white space by one space.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Printable removes control characters, which could change the state of a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return -1
	}, s)
}
