package demo

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// shown bounds how many objects of a Kustomization are listed.
const shown = 8

// waits are the reasons for which an object is not Ready yet, and nothing is wrong.
var waits = []string{"DependencyNotReady", "ArtifactFailed", "GateClosed"}

// screen shows the demo: a tree that is drawn over on a terminal, a line a change elsewhere.
type screen struct {
	out           io.Writer
	terminal      bool
	width, height int
	drawn         int               // lines of the tree on the terminal
	said          map[string]string // by card, elsewhere
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, width: 120, said: map[string]string{}}
	switch out := out.(type) {
	case *os.File:
		if term.IsTerminal(int(out.Fd())) {
			s.terminal, s.width, s.height = true, 80, 24
			if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 20 && h > 0 {
				s.width, s.height = w, h
			}
		}
	case *Recorder:
		s.terminal, s.width, s.height = true, out.width, out.height
	}
	return s
}

func (s *screen) colour(code, text string) string {
	if !s.terminal || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *screen) title() {
	s.printf("\n%s  git → source → artifact → build → apply → health\n\n", s.colour("1;36", "Sluice"))
}

func (s *screen) done(what string, took time.Duration) {
	s.printf("%s %s %s\n", s.colour("32", "✔"), what, s.colour("90", fmt.Sprintf("(%.1fs)", took.Seconds())))
}

// draw shows the board as it is now.
func (s *screen) draw(b *board) {
	if !s.terminal {
		s.changes(b)
		return
	}
	lines := s.tree(b)
	if s.drawn > 0 {
		s.printf("\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		s.printf("\r\x1b[K%s\n", l)
	}
	for i := len(lines); i < s.drawn; i++ {
		s.printf("\x1b[K\n")
	}
	s.drawn = max(len(lines), s.drawn)
}

// settle shows the tree once more where it was not drawn.
func (s *screen) settle(b *board) {
	if !s.terminal {
		s.printf("%s\n", strings.Join(s.tree(b), "\n"))
	}
}

// changes prints a line for each card that changed.
func (s *screen) changes(b *board) {
	for _, c := range b.cards {
		line := fmt.Sprintf("%s %s %s: %s", s.mark(c), c.kind, c.name, s.message(c))
		if s.said[c.kind+c.name] != line {
			s.said[c.kind+c.name] = line
			s.printf("%s %s\n", s.colour("90", time.Now().Format(time.TimeOnly)), line)
		}
	}
}

// tree draws each source with what is made of it. On a terminal it lists only as many objects as fit on it: what has
// scrolled away cannot be drawn over.
func (s *screen) tree(b *board) []string {
	lines := s.treeWith(b, shown)
	for objects := shown - 1; s.terminal && len(lines) >= s.height && objects >= 0; objects-- {
		lines = s.treeWith(b, objects)
	}
	return lines
}

func (s *screen) treeWith(b *board, objects int) []string {
	lines := []string{""}
	for _, source := range b.of("GitRepository") {
		lines = append(lines, s.line(" ", source, ""))
		made := b.madeOf(source)
		for i, c := range made {
			branch, below := " ├─ ", " │  "
			if i == len(made)-1 {
				branch, below = " └─ ", "    "
			}
			lines = append(lines, s.line(branch, c, ""))
			for _, g := range b.of("Gate") {
				if slices.Contains(c.gates, g.name) {
					lines = append(lines, s.line(below, g, "gate "))
				}
			}
			if c.ready == "True" {
				lines = append(lines, s.list(below, c.objects, objects)...)
			}
		}
	}
	return append(lines, "")
}

// line shows a card, with as much of its message as fits.
func (s *screen) line(indent string, c *card, what string) string {
	used := len([]rune(indent+what+c.name)) + 3
	return fmt.Sprintf("%s%s %s%s %s", indent, s.mark(c), what, s.colour("1", c.name),
		s.colour("90", s.fit(s.message(c), used)))
}

// list is a line an object, of the first ones. Without any, it is their number.
func (s *screen) list(indent string, objects []string, limit int) []string {
	var lines []string
	for _, o := range objects[:min(len(objects), limit)] {
		lines = append(lines, indent+s.colour("90", "· "+s.fit(o, len([]rune(indent))+2)))
	}
	if more := len(objects) - limit; more > 0 && limit > 0 {
		lines = append(lines, indent+s.colour("90", fmt.Sprintf("… and %d more", more)))
	}
	return lines
}

// fit shortens a text to what is left of a line on a terminal.
func (s *screen) fit(text string, used int) string {
	text = strings.ReplaceAll(text, "\n", " ")
	room := max(s.width-used-1, 10)
	if r := []rune(text); s.terminal && len(r) > room {
		return string(r[:room-1]) + "…"
	}
	return text
}

// wrap breaks a text between words at the width of a terminal. Further lines begin with the indent.
func (s *screen) wrap(text, indent string) string {
	if !s.terminal {
		return text
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line+" "+word)) > s.width-3: // a mark may be before the first line
			lines, line = append(lines, line), indent+word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

func (s *screen) mark(c *card) string {
	switch {
	case c.ready == "True":
		return s.colour("32", "✔")
	case c.ready == "False" && c.kind != "Gate" && !slices.Contains(waits, c.reason):
		return s.colour("31", "✗")
	default:
		return s.colour("33", "◎")
	}
}

func (s *screen) message(c *card) string {
	if i := strings.Index(c.message, "sha1:"); i >= 0 && len(c.message) >= i+45 {
		return c.message[:i+13] + c.message[i+45:]
	}
	return c.message
}

// preview shows a command that previews a branch, and what it prints.
func (s *screen) preview(command, output string) {
	s.printf("\n%s a branch shows what it would do before it lands:\n\n  %s %s\n", s.colour("1;33", "Preview:"),
		s.colour("90", "$"), command)
	for _, line := range strings.Split(strings.TrimSpace(output), "\n") {
		s.printf("  %s\n", s.fit(line, 2))
	}
	s.drawn = 0
}

// approval shows what a person decides about, and how. The previous drawing stays, and the tree is drawn again below.
func (s *screen) approval(held []*card, gate *card, asks bool, ui string) {
	var pending []string
	for _, h := range held {
		pending = append(pending, h.pending...)
	}
	s.printf("\n%s\n%s\n\n  %s sluice gate open %s -n %s\n\n",
		s.colour("1;33", s.wrap(fmt.Sprintf("Waiting for a person: the gate %s is closed; once it is open, %s would "+
			"do this:", gate.name, names(held)), "")),
		strings.Join(s.list("  ", pending, shown), "\n"),
		s.colour("90", "$"), gate.name, namespace)
	if asks {
		s.printf("%s\n\n  %s\n\n", s.wrap("Press Enter to open the gate as this command does, or open it in the web "+
			"UI:", ""), ui)
	}
	s.drawn = 0
}

func (s *screen) approved(held []*card, gate *card, took time.Duration) {
	s.printf("%s gate %s opened, %s Ready %s\n", s.colour("32", "✔"), gate.name, names(held),
		s.colour("90", fmt.Sprintf("(%.1fs)", took.Seconds())))
}

// names returns the names of cards as a list in words.
func names(cards []*card) string {
	var all []string
	for _, c := range cards {
		all = append(all, c.name)
	}
	return strings.Join(all, " and ")
}

// notified shows the notifications of a team.
func (s *screen) notified(n notification) {
	s.printf("%s %s\n", s.colour("32", "✔"), s.wrap(fmt.Sprintf("the team of %s is notified: %s %s: %s",
		n.Metadata["summary"], n.InvolvedObject.Kind, n.InvolvedObject.Name, n.Message), "  "))
}

func (s *screen) allReady(took time.Duration) {
	s.printf("%s\n", s.colour("1;32", s.wrap(fmt.Sprintf(
		"All Ready %.1f seconds after the pipeline was applied: system == declarations == git.", took.Seconds()), "")))
}

func (s *screen) whatToTry(d *demo) {
	sluice, err := filepath.Abs(d.Sluice)
	if err != nil {
		sluice = d.Sluice
	}
	comment := func(text string) string { return s.colour("36", "# "+text) }
	s.printf(`
%s, in another terminal:

  export KUBECONFIG=%s
  export PATH=%s:$PATH

  %s
  cd %s
  sed -i 's/replicas: 2/replicas: 3/' frontend/deployment.yaml
  git commit -qam 'Three of them' && git push -q
  sluice reconcile kustomization webapp-frontend --with-source

  %s
  kubectl -n webapp delete deployment backend    # or any other client

  %s
  sluice gate close release -n %s

  %s
  %s

  %s
  sluice get all -A
  tail -f %s

Changes show below. Ctrl-C ends the demo and leaves nothing behind.

`, s.colour("1", "Now try"), d.kubeconfig, filepath.Dir(sluice),
		comment("change a file in git and see it land"), filepath.Join(d.dir, "webapp"),
		comment("delete an object and see it return within two seconds"),
		comment("close the gate: changes of the frontend wait again"), namespace,
		comment("open the web UI in a browser of this machine"), d.ui,
		comment("look around"), filepath.Join(d.dir, "sluice.log"))
}

func (s *screen) bye() { s.printf("\nThe demo has ended and left nothing behind.\n") }
