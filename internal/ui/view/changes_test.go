package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// manyCommits returns applications, each with a commit of its own; the first of them wait for another one.
func manyCommits(count, waiting int) []*Item {
	var items []*Item
	for n := range count {
		i := app(fmt.Sprintf("app-%03d", n), Ready)
		i.Revision, i.Changed = fmt.Sprintf("main@sha1:%040d", n), noon.Add(time.Duration(n%7)*time.Second)
		if n < waiting {
			i.Pending = fmt.Sprintf("main@sha1:f%039d", n)
		}
		items = append(items, i)
	}
	return items
}

func TestChangesComeInPagesWithoutGaps(t *testing.T) {
	items := manyCommits(500, 30)
	var got []string
	for after := ""; ; {
		p, err := PageOfChanges(items, "", 37, after)
		if err != nil || p.Total != 530 && len(items) == 500 {
			t.Fatalf("%d of %d changes (%v)", len(p.Changes), p.Total, err)
		}
		for _, c := range p.Changes {
			got = append(got, c.Revision)
		}
		if after = p.Next; after == "" {
			break
		}
		newest := app(fmt.Sprintf("new-%d", len(got)), Ready) // comes while a person reads
		newest.Revision, newest.Changed = fmt.Sprintf("main@sha1:e%039d", len(got)), noon.Add(time.Hour)
		items = append(items, newest)
	}
	old := slices.DeleteFunc(slices.Clone(got), func(r string) bool { return strings.HasPrefix(r, "main@sha1:e") })
	slices.Sort(old)
	if len(old) != 530 || len(slices.Compact(old)) != 530 {
		t.Errorf("%d changes, %d of them distinct, want 530", len(old), len(slices.Compact(old)))
	}
	if !strings.HasPrefix(got[29], "main@sha1:f") {
		t.Errorf("a change that does not wait is before one that waits: %s", got[29])
	}
	for _, cursor := range []string{"x", "live x y", "dead 2026-01-01T00:00:00Z a"} {
		if _, err := PageOfChanges(items, "", 1, cursor); err == nil {
			t.Errorf("the cursor %q is accepted", cursor)
		}
	}
}

func TestEqualVersionsOfOtherChartsAreOtherChanges(t *testing.T) {
	var items []*Item
	for _, name := range []string{"web", "db"} {
		chart := &Item{ID: ID("HelmChart", "team", name), Kind: "HelmChart", Namespace: "team", Name: name,
			Revision: "1.0.0", Changed: noon}
		release := &Item{ID: ID("HelmRelease", "team", name), Kind: "HelmRelease", Namespace: "team", Name: name,
			Revision: "1.0.0", Changed: noon, Sources: []string{chart.ID}}
		items = append(items, chart, release)
	}
	for _, c := range Changes(items, "") {
		if len(c.Live) != 1 || len(c.Sources) != 1 || c.Live[0].Name != c.Sources[0].Name {
			t.Errorf("%s has %d objects", c.Key, len(c.Live)+len(c.Sources))
		}
	}
	if n := len(Changes(items, "")); n != 2 {
		t.Errorf("%d changes, want 2", n)
	}
}

func TestChangeOfManyObjectsIsShortened(t *testing.T) {
	var items []*Item
	for n := range 10_000 {
		i := app(fmt.Sprintf("app-%05d", n), Ready)
		i.Changed = noon
		items = append(items, i)
	}
	p, err := PageOfChanges(items, "app-09999", 50, "")
	if err != nil || len(p.Changes) != 1 {
		t.Fatalf("%+v (%v)", p, err)
	}
	if c := p.Changes[0]; len(c.Live) != maxListed || c.LiveCount != 10_000 {
		t.Errorf("%d of %d objects are listed", len(c.Live), c.LiveCount)
	}
}

func TestChangesContainWhatFailedAndOlderCommitsKeepTheirSubjects(t *testing.T) {
	const older, newer = "main@sha1:" + commit, "main@sha1:fffffffffffffffffffffffffffffffffffffff0"
	source := git("repo", Ready)
	source.Revision, source.Subject, source.Author, source.Changed = newer, "Sell more", "Ada", noon
	behind := app("behind", Failed, source.ID)
	behind.Revision, behind.Attempted, behind.Changed = older, newer, noon.Add(-time.Hour)
	behind.Since, behind.Subject, behind.Author = noon.Add(time.Minute), "Open the shop", "Bob"
	sets := Changes([]*Item{source, behind}, "")
	if len(sets) != 2 {
		t.Fatalf("%d changes, want 2", len(sets))
	}
	if c := sets[0].shortened(); c.Revision != newer || c.Subject != "Sell more" || c.FailedCount != 1 ||
		c.Failed[0] != behind || !c.At.Equal(behind.Since) || len(c.Live) != 0 {
		t.Errorf("the commit at which an object failed is %+v", c)
	}
	if c := sets[1]; c.Revision != older || c.Subject != "Open the shop" || c.Author != "Bob" || len(c.Live) != 1 {
		t.Errorf("the older commit is %+v", c)
	}
	if found := Changes([]*Item{source, behind}, "sell behind"); len(found) != 1 {
		t.Errorf("a search finds %d changes by an object that failed", len(found))
	}
}

func TestHistoryGivesTheSubjectOfTheAppliedRevision(t *testing.T) {
	d := newDelivery()
	d.app.Status.History = []kustomizev1.Snapshot{
		{Reconciliation: meta.Reconciliation{Metadata: map[string]string{"revision": "main@sha1:later",
			meta.CommitSubjectKey: "not applied"}}},
		{Reconciliation: meta.Reconciliation{Metadata: map[string]string{"revision": d.app.Status.LastAppliedRevision,
			meta.CommitSubjectKey: "Open the shop", meta.CommitAuthorKey: "Bob"}}}}
	if i := Of(kind.ByName("Kustomization"), d.app); i.Subject != "Open the shop" || i.Author != "Bob" {
		t.Errorf("the commit is %q by %q", i.Subject, i.Author)
	}
}
