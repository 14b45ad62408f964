package view

import (
	"slices"
	"strings"
	"time"
)

// maxChanges bounds the list of changes.
const maxChanges = 200

// ChangeSet is one revision with the objects that it waits at, or was brought to.
type ChangeSet struct {
	Revision string    `json:"revision"`
	Subject  string    `json:"subject,omitempty"` // of the commit
	Author   string    `json:"author,omitempty"`
	At       time.Time `json:"at,omitzero"` // newest
	Pending  []*Item   `json:"pending,omitempty"`
	Live     []*Item   `json:"live,omitempty"`
	Sources  []*Item   `json:"sources,omitempty"`
}

// Changes groups what waits and what was changed by revision, newest first. Revisions that wait come first.
func Changes(items []*Item) []*ChangeSet {
	byRevision := map[string]*ChangeSet{}
	get := func(revision string) *ChangeSet {
		key := revision
		if i := strings.LastIndexByte(revision, ':'); i >= 0 {
			key = revision[i+1:] // the same commit by branch and by tag
		}
		if byRevision[key] == nil {
			byRevision[key] = &ChangeSet{Revision: revision}
		}
		return byRevision[key]
	}
	for _, i := range items {
		if i.Pending != "" {
			c := get(i.Pending)
			c.Pending = append(c.Pending, i)
		}
		if i.Revision == "" || i.Changed.IsZero() {
			continue
		}
		c := get(i.Revision)
		if i.Changed.After(c.At) {
			c.At = i.Changed
		}
		if i.deploys() {
			c.Live = append(c.Live, i)
			continue
		}
		c.Sources = append(c.Sources, i)
		if i.Subject != "" {
			c.Subject, c.Author = i.Subject, i.Author
		}
	}
	sets := make([]*ChangeSet, 0, len(byRevision))
	for _, c := range byRevision {
		sets = append(sets, c)
	}
	slices.SortFunc(sets, func(a, b *ChangeSet) int {
		if x := order(len(a.Pending) == 0) - order(len(b.Pending) == 0); x != 0 {
			return x
		}
		if x := b.At.Compare(a.At); x != 0 {
			return x
		}
		return strings.Compare(a.Revision, b.Revision)
	})
	return sets[:min(len(sets), maxChanges)]
}
