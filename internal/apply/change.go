package apply

import (
	"fmt"
	"strings"
)

// Action is what became of an object.
type Action string

// Actions.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
	Skipped    Action = "skipped" // an annotation says to leave it alone
)

// Change is what became of one object, or would become of it.
type Change struct {
	Ref             Ref
	Action          Action
	ResourceVersion string // the resource version of what was written; empty if nothing was
	Diff            string // what changed of an object that was there, as [diff.Text] words it; empty if it was not asked for
	PreviousOwner   Owner  // another owner to whom the object belonged until now; zero if there is none
}

// changes lists what became of the items.
func changes(items []*item) []Change {
	var out []Change
	for _, i := range items {
		if i.done {
			out = append(out, Change{i.ref, i.action, i.written, i.diff, i.from})
		}
	}
	return out
}

// claims warns of objects that belonged to other owners. An object that moves from one owner to another does once; what
// two owners declare does again and again.
func claims(owner Owner, changes []Change) []string {
	var out []string
	for _, c := range changes {
		if c.PreviousOwner != (Owner{}) {
			out = append(out, fmt.Sprintf("%s was applied by %s before, and now by %s: if both declare it, they "+
				"take it from each other for ever; remove it from one of them", c.Ref, c.PreviousOwner, owner))
		}
	}
	return out
}

// Summary counts what became of objects.
type Summary struct{ Created, Configured, Unchanged, Deleted, Skipped int }

// Summarize counts changes by what became of the objects.
func Summarize(changes []Change) Summary {
	var s Summary
	for _, c := range changes {
		switch c.Action {
		case Created:
			s.Created++
		case Configured:
			s.Configured++
		case Unchanged:
			s.Unchanged++
		case Deleted:
			s.Deleted++
		case Skipped:
			s.Skipped++
		}
	}
	return s
}

// String names the counts that are not zero, such as "1 created, 2 unchanged".
func (s Summary) String() string {
	var parts []string
	for _, p := range []struct {
		n      int
		action Action
	}{{s.Created, Created}, {s.Configured, Configured}, {s.Unchanged, Unchanged}, {s.Deleted, Deleted},
		{s.Skipped, Skipped}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.action))
		}
	}
	if len(parts) == 0 {
		return "no objects"
	}
	return strings.Join(parts, ", ")
}
