package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Summary returns what a cluster with these items reports to a hub. The caller adds time, version and labels.
func Summary(items []*Item) *fleet.Summary {
	s := &fleet.Summary{Counts: fleet.Counts{}, Kinds: map[string]fleet.Counts{}}
	for _, i := range items {
		if s.Kinds[i.Kind] == nil {
			s.Kinds[i.Kind] = fleet.Counts{}
		}
		s.Counts[string(i.State)]++
		s.Kinds[i.Kind][string(i.State)]++
	}
	s.Revisions, s.Omitted.Revisions = bounded(revisionsOf(items), fleet.MaxRevisions)
	s.Changes, s.Omitted.Changes = bounded(changesOf(items), fleet.MaxChanges)
	failed, omitted := bounded(problems(items), fleet.MaxProblems)
	for _, p := range failed {
		s.Problems = append(s.Problems, fleet.Problem{Object: text(p.Item.ID), State: string(p.Item.State),
			Reason: text(p.Item.Reason), Message: message(p.Item.Message), Since: p.Item.Since, Affected: p.Count})
	}
	s.Omitted.Problems = omitted
	return s
}

func bounded[T any](all []T, most int) (first []T, omitted int) {
	n := min(len(all), most)
	return all[:n], len(all) - n
}

// text and message return texts that fit into a summary: without control characters.
func text(s string) string    { return excerpt.Line(s, fleet.MaxText) }
func message(s string) string { return excerpt.Line(s, fleet.MaxMessage) }

// revisionsOf returns the revisions of the sources whose artifacts are applied, the latest first.
func revisionsOf(items []*Item) []fleet.Revision {
	bySource := map[string]*progress{}
	for _, i := range items {
		switch i.Kind {
		case "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact":
			if i.Revision != "" {
				bySource[i.ID] = &progress{source: i, applied: map[string]*fleet.Applied{}}
			}
		}
	}
	for _, i := range items {
		if len(i.Sources) == 0 || i.Kind != "Kustomization" && i.Kind != "HelmRelease" {
			continue
		}
		if p := bySource[i.Sources[0]]; p != nil {
			p.add(i)
		}
	}
	found := slices.SortedFunc(maps.Values(bySource), func(a, b *progress) int {
		return cmp.Or(b.source.Changed.Compare(a.source.Changed), cmp.Compare(a.source.ID, b.source.ID))
	})
	all := make([]fleet.Revision, 0, len(found))
	for _, p := range found {
		all = append(all, p.revision())
	}
	return all
}

// progress is how far the revision of a source has come.
type progress struct {
	source           *Item
	objects, current int
	since            time.Time
	applied          map[string]*fleet.Applied
}

func (p *progress) add(i *Item) {
	if i.Kind == "HelmRelease" && p.source.Kind != "OCIRepository" {
		return // the version of a chart does not tell which commit it is from
	}
	p.objects++
	if !isAt(i, p.source) {
		if i.Revision == "" {
			return
		}
		a := p.applied[i.Revision]
		if a == nil {
			a = &fleet.Applied{Revision: excerpt.Line(i.Revision, fleet.MaxRevision), Subject: text(i.Subject)}
			p.applied[i.Revision] = a
		}
		a.Objects++
		return
	}
	if i.State != Ready {
		return
	}
	p.current++
	for _, at := range []time.Time{i.Changed, i.Since} {
		if at.After(p.since) {
			p.since = at
		}
	}
}

// isAt reports whether an object has applied the revision of its source.
func isAt(i, source *Item) bool {
	if i.Kind == "HelmRelease" {
		version, _, _ := strings.Cut(i.Revision, "+")
		tag, _, _ := strings.Cut(source.Revision, "@")
		return version == tag
	}
	return sameContent(i.Revision, source.Revision)
}

func (p *progress) revision() fleet.Revision {
	s := p.source
	r := fleet.Revision{Source: text(s.ID), URL: text(s.URL), Revision: excerpt.Line(s.Revision, fleet.MaxRevision),
		Subject: text(s.Subject), Author: text(s.Author), Fetched: s.Changed, Objects: p.objects, Current: p.current}
	if s.Times != nil {
		r.Committed = s.Times.Committed
	}
	if p.objects > 0 && p.current == p.objects {
		r.Since = p.since
		if s.Changed.After(r.Since) {
			r.Since = s.Changed // the objects apply the same content as before
		}
	}
	applied := slices.SortedFunc(maps.Values(p.applied), func(a, b *fleet.Applied) int {
		return cmp.Or(b.Objects-a.Objects, cmp.Compare(a.Revision, b.Revision))
	})
	for _, a := range applied[:min(len(applied), fleet.MaxApplied)] {
		r.Applied = append(r.Applied, *a)
	}
	return r
}

// changesOf returns what waits at gates, the oldest first.
func changesOf(items []*Item) []fleet.Change {
	gates := map[string]*Item{}
	for _, i := range items {
		if i.Gate != nil {
			gates[i.ID] = i
		}
	}
	var all []fleet.Change
	for _, i := range items {
		if i.Pending == "" || len(i.HeldBy) == 0 {
			continue
		}
		c := fleet.Change{Gate: text(i.HeldBy[0]), Object: text(i.ID), Digest: text(i.Change), Risk: text(i.Risk),
			Revision: excerpt.Line(i.Pending, fleet.MaxRevision), Message: message(i.Held), Since: i.PendingSince}
		for _, id := range i.HeldBy {
			if g := gates[id]; g != nil {
				c.Gate = text(id)
				g.Gate.describe(&c, i)
				break
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b fleet.Change) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object, b.Object))
	})
	return all
}

// describe adds who may approve a change of an object at the gate, and when the gate opens by itself.
func (g *Gate) describe(c *fleet.Change, i *Item) {
	c.Until, c.Required, c.Approved = g.Until, int(g.Required), int(g.Approved)
	name := ""
	for _, w := range g.Waiting {
		if w.ID == i.ID {
			name = w.Rule
			c.Message = cmp.Or(message(w.Message), c.Message)
		}
	}
	c.Message = cmp.Or(c.Message, message(g.Why))
	for _, r := range g.Rules {
		if r.Name != name || r.Required == 0 {
			continue
		}
		c.Required = int(r.Required)
		for _, user := range r.Users[:min(len(r.Users), fleet.MaxApprovers)] {
			c.Users = append(c.Users, text(user))
		}
		for _, group := range r.Groups[:min(len(r.Groups), fleet.MaxApprovers)] {
			c.Groups = append(c.Groups, text(group))
		}
	}
}
