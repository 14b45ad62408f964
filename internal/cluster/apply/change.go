package apply

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Action is what was done to an object.
type Action string

// Actions.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
	Skipped    Action = "skipped" // an annotation or a label excludes the object
	Hidden     Action = "hidden"  // in a preview: the account has no right to see what would be done
)

// Change is what was done to an object, or in a preview what would be done.
type Change struct {
	Ref             Ref
	Action          Action
	ResourceVersion string // of the object after it was written; empty if it was not
	Diff            string // changed fields of an object that existed, in the format of [diff.Text]; may be empty
	PreviousOwner   Owner  // another owner that applied the object before; zero if there is none
	Recreated       bool   // the object was created after it was deleted, as an immutable field changes
	// HeldBy are the finalizers of an object whose deletion was requested: it exists until they are removed.
	HeldBy []string
	// Unknown are fields that the kind does not have. They were left out.
	Unknown []UnknownField

	// Before and After are the object before and after the change, if the request says Inspect. Before is nil for an
	// object that would be created, After for one that would be deleted.
	Before, After *unstructured.Unstructured
}

func (r *run) changes() []Change {
	var out []Change
	for _, s := range r.steps {
		if o := s.outcome; o != nil {
			out = append(out, Change{Ref: s.ref, Action: o.action, ResourceVersion: o.version, Diff: o.diff,
				PreviousOwner: o.previousOwner, Recreated: s.plan != nil && s.plan.recreate,
				Unknown: r.unknownFields(s), Before: o.before, After: o.after})
		}
	}
	return out
}

// ownershipWarnings returns a warning for each object that another owner applied before. An object that moves
// to another owner causes one warning; one that two owners declare causes a warning on each apply.
func ownershipWarnings(owner Owner, changes []Change) []string {
	var out []string
	for _, c := range changes {
		if c.PreviousOwner != (Owner{}) {
			out = append(out, fmt.Sprintf("%s was applied by %s before, and now by %s: if both declare it, each apply "+
				"overwrites the other; remove it from one of them", c.Ref, c.PreviousOwner, owner))
		}
	}
	return out
}

// Summary counts changes by action.
type Summary struct{ Created, Configured, Unchanged, Deleted, Skipped int }

// Summarize counts changes by action.
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

// Add adds the counts of another summary.
func (s *Summary) Add(o Summary) {
	s.Created += o.Created
	s.Configured += o.Configured
	s.Unchanged += o.Unchanged
	s.Deleted += o.Deleted
	s.Skipped += o.Skipped
}

// Fields returns the counts as keys and values of a log entry.
func (s Summary) Fields() []any {
	return []any{string(Created), s.Created, string(Configured), s.Configured, string(Unchanged), s.Unchanged,
		string(Deleted), s.Deleted}
}

// String lists the counts that are not zero, such as "1 created, 2 unchanged".
func (s Summary) String() string {
	var parts []string
	for _, p := range []struct {
		n      int
		action Action
	}{{n: s.Created, action: Created}, {n: s.Configured, action: Configured}, {n: s.Unchanged, action: Unchanged},
		{n: s.Deleted, action: Deleted},
		{n: s.Skipped, action: Skipped}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.action))
		}
	}
	if len(parts) == 0 {
		return "no objects"
	}
	return strings.Join(parts, ", ")
}
