// Package term writes the output of commands: progress, questions, tables and colours. It knows nothing of Kubernetes.
package term

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// UI is the standard streams of a command. Results go to Out. Progress, questions and errors go to Err.
type UI struct {
	In       *bufio.Reader
	Out, Err *Screen
	keyboard *os.File // what In reads from if that is a terminal, else nil
}

// New returns a UI over the given streams.
func New(in io.Reader, out, errOut io.Writer) *UI {
	u := &UI{In: bufio.NewReader(in), Out: NewScreen(out), Err: NewScreen(errOut)}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		u.keyboard = f
	}
	return u
}

// Done reports a completed step.
func (u *UI) Done(format string, args ...any) { u.line(Green, "✔", format, args...) }

// Step reports a step that starts, or a hint.
func (u *UI) Step(format string, args ...any) { u.line(Grey, "►", format, args...) }

// Warn reports something that the command left out or could not do.
func (u *UI) Warn(format string, args ...any) { u.line(Yellow, "►", format, args...) }

// Fail reports an error.
func (u *UI) Fail(err error) { u.line(Red, "✗", "%v", err) }

// Debug reports a detail that only --verbose shows.
func (u *UI) Debug(format string, args ...any) { u.line(Grey, "·", format, args...) }

func (u *UI) line(colour, mark, format string, args ...any) {
	u.Clear()
	fmt.Fprintf(u.Err, "%s %s\n", u.Err.Paint(colour, mark), fmt.Sprintf(format, args...))
}

// Live shows a line of progress that the next line replaces. It does nothing unless Err is a terminal without NO_COLOR.
func (u *UI) Live(format string, args ...any) {
	if u.Err.animated() {
		u.Clear()
		fmt.Fprintf(u.Err, "%s %s", u.Err.Paint(Yellow, "◎"), u.Err.fit(OneLine(fmt.Sprintf(format, args...)), 2))
	}
}

// Clear removes the line that Live shows.
func (u *UI) Clear() {
	if u.Err.animated() {
		fmt.Fprint(u.Err.Writer, "\r\x1b[K")
	}
}

// Confirm asks a question and reports whether the answer is yes. No answer is no.
func (u *UI) Confirm(question string) bool {
	fmt.Fprintf(u.Err, "%s [y/N] ", question)
	answer, err := u.In.ReadString('\n')
	return (err == nil || answer != "") && slices.Contains([]string{"y", "yes"},
		strings.ToLower(strings.TrimSpace(answer)))
}

// ReadSecret reads one line from In. On a terminal it shows the prompt and hides what is typed. An empty line is an
// error.
func (u *UI) ReadSecret(prompt string) (string, error) {
	var line string
	var err error
	if u.keyboard != nil {
		fmt.Fprintf(u.Err, "%s: ", prompt)
		var typed []byte
		typed, err = term.ReadPassword(int(u.keyboard.Fd()))
		line = string(typed)
		fmt.Fprintln(u.Err)
	} else {
		line, err = u.In.ReadString('\n')
	}
	if line = strings.TrimRight(line, "\r\n"); line != "" {
		return line, nil
	}
	if err == nil {
		err = errors.New("the line is empty")
	}
	return "", err
}
