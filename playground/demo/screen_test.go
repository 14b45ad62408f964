package demo

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// pipelineBoard is the board of the demo, with as many objects as its examples have.
func pipelineBoard() *board {
	objects := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("CustomResourceDefinition resources%d.of.a.long.name.istio.example.com", i))
		}
		return all
	}
	return &board{cards: []*card{
		{kind: "GitRepository", name: "istio", ready: "True", message: "stored artifact"},
		{kind: "GitRepository", name: "webapp", ready: "True", message: "stored artifact"},
		{kind: "Kustomization", name: "istio", source: "istio", objects: objects(9)},
		{kind: "Kustomization", name: "webapp-common", source: "webapp", objects: objects(3)},
		{kind: "Kustomization", name: "webapp-backend", source: "webapp", objects: objects(4)},
		{kind: "Gate", name: "release", message: "Gate closed by default"},
		{kind: "Kustomization", name: "webapp-frontend", source: "webapp", gates: []string{"release"},
			objects: objects(3)},
		{kind: "HelmRelease", name: "webapp-cache", source: "webapp", gates: []string{"release"}, objects: objects(3)},
	}}
}

// TestTreeIsDrawnOver draws the tree while all becomes Ready, on a terminal of 80 by 24.
func TestTreeIsDrawnOver(t *testing.T) {
	r := NewRecorder()
	s, b := newScreen(r), pipelineBoard()
	s.title()
	for range 8 { // scrolls
		s.done("a step", time.Second)
	}
	for _, c := range b.cards {
		s.draw(b)
		c.ready, c.message = "True", strings.Repeat("Applied revision ", 10)
	}
	s.draw(b)
	shownText := r.Text()
	for line, want := range map[string]int{"\n ✔ istio": 1, "\n └─ ✔ istio": 1, "\n ├─ ✔ webapp-common": 1,
		"\n └─ ✔ webapp-cache": 1, "✔ gate release": 2} {
		if n := strings.Count(shownText, line); n != want {
			t.Errorf("%q is shown %d times:\n%s", line, n, shownText)
		}
	}
	if strings.Count(shownText, "◎") > 0 {
		t.Errorf("an earlier frame is left:\n%s", shownText)
	}
}

func TestWordsStayWhole(t *testing.T) {
	r := NewRecorder()
	s := newScreen(r)
	words := strings.TrimSpace(strings.Repeat("reconciliation ", 30))
	s.printf("✔ %s\n", s.wrap(words, "  "))
	if got := strings.Count(r.Text(), "reconciliation"); got != 30 {
		t.Errorf("%d of 30 words are whole:\n%s", got, r.Text())
	}
}
