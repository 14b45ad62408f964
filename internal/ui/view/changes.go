package view

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// maxListed bounds the objects of a change that are listed in each of its lists.
const maxListed = 50

// ChangeSet is one revision with the objects that it waits at, or was brought to.
type ChangeSet struct {
	Key      string    `json:"key"` // unique; a commit or digest, or a version with its source
	Revision string    `json:"revision"`
	Subject  string    `json:"subject,omitempty"` // of the commit
	Author   string    `json:"author,omitempty"`
	At       time.Time `json:"at,omitzero"`       // newest
	Pending  []*Item   `json:"pending,omitempty"` // the first of them; so are the other lists
	Live     []*Item   `json:"live,omitempty"`
	Sources  []*Item   `json:"sources,omitempty"`
	Failed   []*Item   `json:"failed,omitempty"` // that could not apply the revision, and have an earlier one

	PendingCount int `json:"pendingCount"` // all, as are the other counts
	LiveCount    int `json:"liveCount"`
	SourceCount  int `json:"sourceCount"`
	FailedCount  int `json:"failedCount"`
}

// ChangePage is a part of the changes that match a search.
type ChangePage struct {
	Changes []*ChangeSet `json:"changes"`
	Total   int          `json:"total"`
	Next    string       `json:"next,omitempty"` // value of after for the next page
}

// ErrNotACursor is the error of a cursor that no page contained.
var ErrNotACursor = errors.New("not the value next of a page of changes")

// PageOfChanges returns the changes behind a cursor; the first ones if it is empty. The cursor is the place of the last
// change in the order, so that no change is left out or repeated if others come and go.
func PageOfChanges(items []*Item, search string, limit int, after string) (*ChangePage, error) {
	sets := Changes(items, search)
	p := &ChangePage{Changes: []*ChangeSet{}, Total: len(sets)}
	start := 0
	if after != "" {
		last, err := cursorOf(after)
		if err != nil {
			return nil, err
		}
		found := false
		if start, found = slices.BinarySearchFunc(sets, last, compareSets); found {
			start++
		}
	}
	end := min(start+limit, len(sets))
	for _, c := range sets[start:end] {
		p.Changes = append(p.Changes, c.shortened())
	}
	if end < len(sets) && end > start {
		p.Next = sets[end-1].cursor()
	}
	return p, nil
}

// cursor returns the place of a change in the order.
func (c *ChangeSet) cursor() string {
	waits := "live"
	if len(c.Pending) > 0 {
		waits = "waits"
	}
	return waits + " " + c.At.UTC().Format(time.RFC3339Nano) + " " + c.Key
}

// cursorOf returns a change with the place of a cursor.
func cursorOf(text string) (*ChangeSet, error) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 || parts[0] != "live" && parts[0] != "waits" {
		return nil, ErrNotACursor
	}
	at, err := time.Parse(time.RFC3339Nano, parts[1])
	if err != nil {
		return nil, ErrNotACursor
	}
	c := &ChangeSet{At: at, Key: parts[2]}
	if parts[0] == "waits" {
		c.Pending = []*Item{nil}
	}
	return c, nil
}

// compareSets orders changes: those that wait first, then the newest.
func compareSets(a, b *ChangeSet) int {
	return cmp.Or(order(len(a.Pending) == 0)-order(len(b.Pending) == 0), b.At.Compare(a.At),
		strings.Compare(a.Key, b.Key))
}

// shortened returns the change with the first of its objects.
func (c *ChangeSet) shortened() *ChangeSet {
	out := *c
	out.PendingCount, out.LiveCount, out.SourceCount = len(c.Pending), len(c.Live), len(c.Sources)
	out.FailedCount = len(c.Failed)
	for _, list := range []*[]*Item{&out.Pending, &out.Live, &out.Sources, &out.Failed} {
		*list = (*list)[:min(len(*list), maxListed)]
	}
	return &out
}

// Changes groups what waits and what was changed by revision, newest first. Revisions that wait come first. Only those
// are returned that contain all words of a search, which is in lower case: one of their objects, images or authors.
func Changes(items []*Item, search string) []*ChangeSet {
	byRevision := map[string]*ChangeSet{}
	get := func(i *Item, revision string) *ChangeSet {
		key := digestOf(revision) // the same commit by branch and by tag
		switch {
		case key != "":
		case i.deploys() && len(i.Sources) > 0:
			key = revision + " " + i.Sources[0] // other charts have the same version
		default:
			key = revision + " " + i.ID
		}
		if byRevision[key] == nil {
			byRevision[key] = &ChangeSet{Key: key, Revision: revision}
		}
		return byRevision[key]
	}
	for _, i := range items {
		if i.Pending != "" {
			c := get(i, i.Pending)
			c.Pending = append(c.Pending, i)
		}
		if i.State == Failed && i.Attempted != "" && i.Attempted != i.Revision && i.Attempted != i.Pending {
			c := get(i, i.Attempted)
			c.Failed = append(c.Failed, i)
			if i.Since.After(c.At) {
				c.At = i.Since
			}
		}
		if i.Revision == "" || i.Changed.IsZero() {
			continue
		}
		c := get(i, i.Revision)
		if c.Subject == "" { // its source may have a later commit
			c.Subject, c.Author = i.Subject, i.Author
		}
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
	slices.SortFunc(sets, compareSets)
	return sets
}

// contains reports whether the revision or one of its objects contains each of the words.
func (c *ChangeSet) contains(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(c.Revision + " " + c.Subject + " " + c.Author)
	return !slices.ContainsFunc(words, func(w string) bool {
		matches := func(i *Item) bool { return i.Matches(w) }
		return !strings.Contains(text, w) && !slices.ContainsFunc(c.Pending, matches) &&
			!slices.ContainsFunc(c.Failed, matches) && !slices.ContainsFunc(c.Sources, matches) &&
			!slices.ContainsFunc(c.Live, func(i *Item) bool {
				if i.Pending == "" || i.Image == "" {
					return i.Matches(w)
				}
				applied := *i
				applied.Image, applied.Pending = "", "" // those of the change that waits
				return applied.Matches(w)
			})
	})
}
