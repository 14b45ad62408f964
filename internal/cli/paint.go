package cli

import (
	"fmt"
	"os"
)

// Colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	grey   = "90"
)

// paint colours text on a terminal, unless NO_COLOR (no-color.org) is set.
func (a *app) paint(colour, text string) string {
	if !a.terminal || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// say prints a line of progress for a person; it goes to standard error, so that standard output is for results.
func (a *app) say(colour, mark, format string, args ...any) {
	a.clear()
	fmt.Fprintf(a.err, "%s %s\n", a.paint(colour, mark), fmt.Sprintf(format, args...))
}

func (a *app) done(format string, args ...any) { a.say(green, "✔", format, args...) }
func (a *app) step(format string, args ...any) { a.say(grey, "►", format, args...) }

// live shows a line that the next one replaces, on a terminal only.
func (a *app) live(format string, args ...any) {
	if a.terminal {
		a.clear()
		fmt.Fprintf(a.err, "%s %s", a.paint(yellow, "◎"), fmt.Sprintf(format, args...))
	}
}

func (a *app) clear() {
	if a.terminal {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
}
