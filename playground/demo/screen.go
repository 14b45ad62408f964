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
	out      io.Writer
	terminal bool
	width    int
	drawn    int               // lines of the tree on the terminal
	said     map[string]string // by card, elsewhere
	began    time.Time
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, width: 120, said: map[string]string{}, began: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
			s.width = w
		}
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
			s.printf("%s %s\n", s.colour("90", fmt.Sprintf("%6.1fs", time.Since(s.began).Seconds())), line)
		}
	}
}

func (s *screen) tree(b *board) []string {
	lines := []string{""}
	for _, c := range b.cards {
		indent := ""
		if c.kind == "Gate" { // shown with what it holds
			continue
		}
		if c.kind == "Kustomization" || c.kind == "HelmRelease" {
			indent = strings.Repeat("   ", b.depth(c)) + "└─ "
		}
		lines = append(lines, fmt.Sprintf(" %s%s %s %s", indent, s.mark(c), s.colour("1", c.name),
			s.colour("90", s.fit(s.message(c), len([]rune(indent))+len(c.name)+6))))
		below := strings.Repeat(" ", len([]rune(indent))+3)
		for _, g := range b.cards {
			if g.kind == "Gate" && slices.Contains(c.gates, g.name) {
				lines = append(lines, fmt.Sprintf("%s%s gate %s %s", below, s.mark(g), s.colour("1", g.name),
					s.colour("90", s.fit(g.message, len(below)+len(g.name)+8))))
			}
		}
		if c.ready == "True" {
			lines = append(lines, s.list(below, c.objects)...)
		}
	}
	return append(lines, "")
}

// list is a line an object, the first of them.
func (s *screen) list(indent string, objects []string) []string {
	var lines []string
	for _, o := range objects[:min(len(objects), shown)] {
		lines = append(lines, indent+s.colour("90", "· "+o))
	}
	if len(objects) > shown {
		lines = append(lines, indent+s.colour("90", fmt.Sprintf("… and %d more", len(objects)-shown)))
	}
	return lines
}

func (s *screen) fit(text string, used int) string {
	text = strings.ReplaceAll(text, "\n", " ")
	room := max(s.width-used, 10)
	if r := []rune(text); s.terminal && len(r) > room {
		return string(r[:room-1]) + "…"
	}
	return text
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
	s.printf("\n%s %s\n%s\n\n  %s sluice gate open %s -n %s\n\n",
		s.colour("1;33", "Waiting for a person:"),
		fmt.Sprintf("the gate %s is closed; once it is open, %s would do this:", gate.name, names(held)),
		strings.Join(s.list("  ", pending), "\n"),
		s.colour("90", "$"), gate.name, namespace)
	if asks {
		s.printf("Press Enter to open the gate as this command does, or open it in the web UI:\n\n  %s\n\n", ui)
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
	s.printf("%s the team of %s is notified: %s %s: %s\n", s.colour("32", "✔"), n.Metadata["summary"],
		n.InvolvedObject.Kind, n.InvolvedObject.Name,
		s.colour("90", strings.ReplaceAll(n.Message, "\n", " ")))
}

func (s *screen) allReady(took time.Duration) {
	s.printf("%s\n", s.colour("1;32", fmt.Sprintf(
		"All Ready %.1f seconds after the pipeline was applied: system == declarations == git.", took.Seconds())))
}

func (s *screen) whatToTry(d *demo) {
	webapp := filepath.Join(d.dir, "webapp")
	sluice, err := filepath.Abs(d.Sluice)
	if err != nil {
		sluice = d.Sluice
	}
	s.printf(`
%s, in another terminal:

  export KUBECONFIG=%s

  %s
  cd %s && sed -i 's/replicas: 2/replicas: 3/' frontend/deployment.yaml
  git -c user.name=me -c user.email=me@example.com commit -qam 'Three of them' && git push -q
  %s reconcile kustomization webapp-frontend --with-source

  %s
  kubectl -n webapp delete deployment backend    # or any other client

  %s
  %s gate close release -n %s

  %s
  %s

  %s
  %s get all -A
  tail -f %s

Changes show below. Ctrl-C ends the demo and leaves nothing behind.

`, s.colour("1", "Now try"), d.kubeconfig,
		s.colour("36", "# change a file in git and see it land"), webapp, sluice,
		s.colour("36", "# delete an object and see it return within two seconds"),
		s.colour("36", "# close the gate: changes of the frontend wait again, and get all shows them"), sluice,
		namespace,
		s.colour("36", "# open the web UI in a browser of this machine"), d.ui,
		s.colour("36", "# look around"), sluice, filepath.Join(d.dir, "sluice.log"))
}

func (s *screen) bye() { s.printf("\nThe demo has ended and left nothing behind.\n") }
