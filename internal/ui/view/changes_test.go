package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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
