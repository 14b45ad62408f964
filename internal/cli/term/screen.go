package term

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

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

// painted are the escape sequences that [Screen.Paint] writes.
var painted = func() []string {
	sequences := []string{"\x1b[0m"}
	for _, colour := range []string{Red, Green, Yellow, Grey} {
		sequences = append(sequences, "\x1b["+colour+"m")
	}
	return sequences
}()

// Write implements [io.Writer]. To a terminal, it writes no control characters but line breaks, tabs and colours: texts
// of objects may have been written by others, and must not hide what is shown or type for the user.
func (s *Screen) Write(p []byte) (int, error) {
	if !s.terminal {
		return s.Writer.Write(p)
	}
	var b strings.Builder
	rest := string(p)
	for rest != "" {
		if i := slices.IndexFunc(painted, func(q string) bool { return strings.HasPrefix(rest, q) }); i >= 0 {
			b.WriteString(painted[i])
			rest = rest[len(painted[i]):]
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		if r == '\n' {
			b.WriteByte('\n')
		} else {
			b.WriteString(Printable(rest[:size]))
		}
		rest = rest[size:]
	}
	if _, err := io.WriteString(s.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Paint returns text in a colour. It returns the text unchanged if the stream is not a terminal or NO_COLOR
// (https://no-color.org) is set.
func (s *Screen) Paint(colour, text string) string {
	if colour == "" || !s.animated() {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// animated reports whether the stream may get escape sequences.
func (s *Screen) animated() bool { return s.terminal && os.Getenv("NO_COLOR") == "" }

// IsTerminal reports whether the stream is a terminal, where people read, and not a file or pipe.
func (s *Screen) IsTerminal() bool { return s.terminal }

// Width returns the number of columns of the terminal, or 80 if the stream is none.
func (s *Screen) Width() int {
	if s.terminal {
		if width, _, err := term.GetSize(s.fd); err == nil && width > 0 {
			return width
		}
	}
	return defaultWidth
}

// fit shortens text to the rest of a line after the given number of cells, since a wrapped line cannot be replaced.
func (s *Screen) fit(text string, used int) string {
	width := s.Width()
	if width <= used+1 {
		width = defaultWidth
	}
	return Cut(text, width-used-1)
}

// Cut shortens text to a number of cells.
func Cut(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string(r[:width-1]) + "…"
}

// Wrap breaks text between words into lines of at most width cells that begin with indent. A longer word has a line of
// its own. Control characters are removed.
func Wrap(text, indent string, width int) string {
	var lines []string
	line := indent
	for _, word := range strings.Fields(Printable(strings.Join(strings.Fields(text), " "))) {
		if line != indent && utf8.RuneCountInString(line+" "+word) > width {
			lines = append(lines, line)
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
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
