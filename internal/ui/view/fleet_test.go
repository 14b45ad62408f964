package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func TestStatesOfSummaries(t *testing.T) {
	var all []string
	for _, s := range reconcile.States {
		all = append(all, string(s))
	}
	if !slices.Equal(all, fleet.States) {
		t.Errorf("the states of objects are %v, those of summaries %v", all, fleet.States)
	}
}

// TestSummary summarizes a cluster in which a commit has reached one of two objects, and waits at a gate for the other.
func TestSummary(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	rev := func(c string) string { return "main@sha1:" + strings.Repeat(c, 40) }
	source := &Item{ID: "GitRepository/flux-system/fleet", Kind: "GitRepository", State: Ready, Revision: rev("b"),
		URL: "https://git.example.com/fleet", Subject: "Fix\x1b[2J it", Changed: at, Times: &Times{Committed: at}}
	gate := &Item{ID: "Gate/team/release", Kind: "Gate", State: Ready, Gate: &Gate{Required: 1, Until: at,
		Why:   "closed",
		Rules: []Rule{{Outcome: "approvals", Required: 2, Groups: []string{"releasers"}}}}}
	current := &Item{ID: "Kustomization/team/a", Kind: "Kustomization", State: Ready, Revision: rev("b"),
		Sources: []string{source.ID}, Changed: at.Add(time.Minute), Since: at.Add(2 * time.Minute)}
	held := &Item{ID: "Kustomization/team/b", Kind: "Kustomization", State: Waiting, Revision: rev("a"),
		Sources: []string{source.ID}, Pending: rev("b"), HeldBy: []string{gate.ID}, PendingSince: at, Change: "c"}
	failed := &Item{ID: "HelmRelease/team/c", Kind: "HelmRelease", State: Failed, Message: "no <b>way</b>\nout"}
	s := Summary([]*Item{source, gate, current, held, failed})
	s.Time = at
	if err := s.Validate(at); err != nil {
		t.Fatal(err)
	}
	if s.Counts["ready"] != 3 || s.Counts["failed"] != 1 || s.Kinds["Kustomization"]["waiting"] != 1 {
		t.Errorf("the counts are %v and %v", s.Counts, s.Kinds)
	}
	r := s.Revisions[0]
	if len(s.Revisions) != 1 || r.Objects != 2 || r.Current != 1 || !r.Since.IsZero() || len(r.Applied) != 1 ||
		r.Applied[0].Revision != rev("a") || !r.Committed.Equal(at) {
		t.Errorf("the revisions are %+v", s.Revisions)
	}
	if c := s.Changes[0]; len(s.Changes) != 1 || c.Gate != gate.ID || c.Required != 2 || c.Groups[0] != "releasers" ||
		c.Message != "closed" || !c.Until.Equal(at) || c.Digest != "c" {
		t.Errorf("the changes are %+v", s.Changes)
	}
	if p := s.Problems[0]; len(s.Problems) != 1 || p.Object != failed.ID || strings.Contains(p.Message, "\n") {
		t.Errorf("the problems are %+v", s.Problems)
	}
	held.State, held.Revision, held.Pending, held.HeldBy = Ready, rev("b"), "", nil
	if r := Summary([]*Item{source, current, held}).Revisions[0]; r.Current != 2 || !r.Since.Equal(current.Since) {
		t.Errorf("when all have it: %+v", r)
	}
}

// TestSummaryIsBounded summarizes a cluster of 10,000 objects that fail.
func TestSummaryIsBounded(t *testing.T) {
	var items []*Item
	for n := range 10_000 {
		items = append(items, &Item{ID: ID("Kustomization", "team", strings.Repeat("x",
			100+n%100)+string(rune('a'+n%26))),
			Kind: "Kustomization", State: Failed, Message: strings.Repeat("é", 1000), Pending: "x",
			HeldBy: []string{"g"}})
	}
	s := Summary(items)
	if err := s.Validate(time.Now()); err != nil || len(s.Problems) != fleet.MaxProblems || s.Omitted.Changes !=
		10_000-fleet.MaxChanges {
		t.Errorf("%v: %+v", err, s.Omitted)
	}
}
