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

// Changes groups what waits and what was changed by revision, newest first. Revisions that wait come first. Only those
// are returned that contain all words of a search, which is in lower case: one of their objects, images or authors.
func Changes(items []*Item, search string) []*ChangeSet {
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
	words := strings.Fields(search)
	for _, c := range byRevision {
		if c.contains(words) {
			sets = append(sets, c)
		}
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

// contains reports whether the revision or one of its objects contains each of the words.
func (c *ChangeSet) contains(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(c.Revision + " " + c.Subject + " " + c.Author)
	objects := slices.Concat(c.Pending, c.Live, c.Sources)
	return !slices.ContainsFunc(words, func(w string) bool {
		return !strings.Contains(text, w) && !slices.ContainsFunc(objects, func(i *Item) bool { return i.Matches(w) })
	})
}
