package view

import (
	"cmp"
	"slices"
	"time"
)

// Bounds of an overview.
const (
	maxProblems   = 100
	maxDependents = 50 // listed with a problem
	maxRecent     = 50
	recentPeriod  = time.Hour
)

// Counts is a number of objects by state.
type Counts map[State]int

// Group is a number of objects that share a kind, namespace or source.
type Group struct {
	Name   string `json:"name"`
	Counts Counts `json:"counts"`
}

// Problem is the first cause of failures.
type Problem struct {
	Item       *Item    `json:"item"`
	Count      int      `json:"count"`                // of objects that fail or wait because of it
	Dependents []string `json:"dependents,omitempty"` // IDs, the first of them
}

// Overview is the health of everything that a user may see.
type Overview struct {
	Total       int       `json:"total"`
	Counts      Counts    `json:"counts"`
	ByNamespace []Group   `json:"byNamespace"`
	ByKind      []Group   `json:"byKind"`
	BySource    []Group   `json:"bySource"`
	Problems    []Problem `json:"problems"`
	Recent      []*Item   `json:"recent"` // changed in the last hour, newest first
	AtGates     int64     `json:"atGates"`
}

// NewOverview summarizes items.
func NewOverview(items []*Item, now time.Time) *Overview {
	o := &Overview{Total: len(items), Counts: Counts{}, Problems: problems(items)}
	byNamespace, byKind, bySource := groups{}, groups{}, groups{}
	for _, i := range items {
		o.Counts[i.State]++
		byNamespace.add(i.Namespace, i.State)
		byKind.add(i.Kind, i.State)
		for _, s := range i.Sources {
			bySource.add(s, i.State)
		}
		if i.Gate != nil {
			o.AtGates += i.Gate.Count
		}
		if now.Sub(i.Changed) < recentPeriod {
			o.Recent = append(o.Recent, i)
		}
	}
	o.ByNamespace, o.ByKind, o.BySource = byNamespace.sorted(), byKind.sorted(), bySource.sorted()
	slices.SortStableFunc(o.Recent, func(a, b *Item) int { return b.Changed.Compare(a.Changed) })
	o.Recent = o.Recent[:min(len(o.Recent), maxRecent)]
	return o
}

type groups map[string]Counts

func (g groups) add(name string, s State) {
	if g[name] == nil {
		g[name] = Counts{}
	}
	g[name][s]++
}

// sorted returns the groups with the most failures first, then by name.
func (g groups) sorted() []Group {
	list := make([]Group, 0, len(g))
	for name, counts := range g {
		list = append(list, Group{Name: name, Counts: counts})
	}
	slices.SortFunc(list, func(a, b Group) int {
		return cmp.Or(b.Counts[Failed]-a.Counts[Failed], cmp.Compare(a.Name, b.Name))
	})
	return list
}

// problems groups objects that fail, or wait for one that fails, by their first cause: ten dependents of a failed
// source are one problem. The problem with the most dependents is first.
func problems(items []*Item) []Problem {
	byID := make(map[string]*Item, len(items))
	for _, i := range items {
		byID[i.ID] = i
	}
	found := map[string]*Problem{}
	for _, i := range items {
		cause := firstCause(i, byID)
		if cause == nil {
			continue
		}
		p := found[cause.ID]
		if p == nil {
			p = &Problem{Item: cause}
			found[cause.ID] = p
		}
		if i != cause {
			p.Count++
			if len(p.Dependents) < maxDependents {
				p.Dependents = append(p.Dependents, i.ID)
			}
		}
	}
	list := make([]Problem, 0, len(found))
	for _, p := range found {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(b.Count-a.Count, a.Item.Since.Compare(b.Item.Since), cmp.Compare(a.Item.ID, b.Item.ID))
	})
	return list[:min(len(list), maxProblems)]
}

// firstCause returns the failed object that an object fails or waits because of, which can be itself. It returns nil if
// nothing failed. Cycles end at the first object that repeats.
func firstCause(i *Item, byID map[string]*Item) *Item {
	seen := map[string]bool{}
	var failed *Item
	for i.State == Failed || i.State == Waiting {
		if seen[i.ID] {
			break
		}
		seen[i.ID] = true
		if i.State == Failed {
			failed = i
		}
		next := slices.IndexFunc(i.upstream(), func(id string) bool {
			u := byID[id]
			return u != nil && (u.State == Failed || u.State == Waiting) && !seen[id]
		})
		if next < 0 {
			break
		}
		i = byID[i.upstream()[next]]
	}
	return failed
}

// upstream returns what the object is built from and waits for.
func (i *Item) upstream() []string { return slices.Concat(i.Sources, i.DependsOn) }
