package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	grey   = "90"
)

// screen is where text goes: a terminal, or anything else that takes plain text.
type screen struct {
	io.Writer
	fd       int
	terminal bool
}

func newScreen(w io.Writer) *screen {
	s := &screen{Writer: w}
	if f, ok := w.(*os.File); ok {
		s.fd = int(f.Fd())
		s.terminal = term.IsTerminal(s.fd) && os.Getenv("TERM") != "dumb"
	}
	return s
}

// paint colours text on a terminal, unless NO_COLOR (no-color.org) is set.
func (s *screen) paint(colour, text string) string {
	if colour == "" || !s.terminal || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// fit shortens text to what is left of a line after so many cells: a line that wraps cannot be replaced.
func (s *screen) fit(text string, taken int) string {
	width, _, err := term.GetSize(s.fd)
	if err != nil || width <= taken+1 {
		width = 80
	}
	if r := []rune(text); len(r) > width-taken-1 {
		return string(r[:width-taken-2]) + "…"
	}
	return text
}

// say prints a line of progress for a person; it goes to standard error, so that standard output is for results.
func (a *app) say(colour, mark, format string, args ...any) {
	a.clear()
	fmt.Fprintf(a.err, "%s %s\n", a.err.paint(colour, mark), fmt.Sprintf(format, args...))
}

func (a *app) done(format string, args ...any) { a.say(green, "✔", format, args...) }
func (a *app) step(format string, args ...any) { a.say(grey, "►", format, args...) }

// live shows a line that the next one replaces, on a terminal only.
func (a *app) live(format string, args ...any) {
	if a.err.terminal {
		a.clear()
		fmt.Fprintf(a.err, "%s %s", a.err.paint(yellow, "◎"), a.err.fit(oneLine(fmt.Sprintf(format, args...)), 2))
	}
}

// clear takes the live line away.
func (a *app) clear() {
	if a.err.terminal {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// printable takes out what would steer a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return -1
	}, s)
}
