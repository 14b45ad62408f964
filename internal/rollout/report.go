package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/diff"
)

// MaxDiffs is the maximum number of objects of an event for which it shows what changed.
const MaxDiffs = 10

const (
	maxLines   = 20      // objects that a text lists
	maxNamed   = 5       // objects that a condition names
	maxSummary = 8 << 10 // bytes
)

// Report collects what a pass changed and found, for the events of its outcome.
type Report struct {
	Owner     reconcile.Ref
	Corrected bool // the changes correct drift: the declaration did not change
	// Reason of the event about other changes; Progressing when empty.
	Reason string

	changes []apply.Change
	counts  apply.Summary
	written map[apply.Ref]string // the resource versions of written objects, by references without a version
	events  []event
}

// event is an event in addition to those about Ready and about changes.
type event struct {
	warning         bool
	reason, message string
}

// AddChanges adds changes of objects that were applied. Objects that were unchanged or skipped are counted only.
func (r *Report) AddChanges(applied []apply.Change) { r.add(applied, Effective(applied)) }

// AddPruned adds changes of objects that are no longer declared. Objects that were skipped stay in the cluster, so they
// are reported, too.
func (r *Report) AddPruned(pruned []apply.Change) { r.add(pruned, pruned) }

// add counts all changes, and reports some of them.
func (r *Report) add(all, changes []apply.Change) {
	r.counts.Add(apply.Summarize(all))
	for _, c := range changes {
		if c.ResourceVersion == "" {
			continue
		}
		if r.written == nil {
			r.written = map[apply.Ref]string{}
		}
		ref := c.Ref
		ref.Version = ""
		r.written[ref] = c.ResourceVersion
	}
	r.changes = append(r.changes, changes...)
}

// HasChanges reports whether the pass changed objects in the cluster.
func (r *Report) HasChanges() bool { return len(r.changes) > 0 }

// Warn adds an event of type Warning.
func (r *Report) Warn(reason, message string) {
	r.events = append(r.events, event{warning: true, reason: reason, message: message})
}

// Note adds an event of type Normal.
func (r *Report) Note(reason, message string) {
	r.events = append(r.events, event{reason: reason, message: message})
}

// Outcome returns the outcome with the events of the report.
func (r *Report) Outcome(o reconcile.Outcome) reconcile.Outcome {
	switch {
	case len(r.changes) == 0:
	case r.Corrected:
		o = o.Note(meta.DriftCorrectedReason, "corrected drift: %s", Summary(r.Owner.Kind, r.changes))
	default:
		o = o.Changed(cmp.Or(r.Reason, meta.ProgressingReason), r.counts.Fields(), Summary(r.Owner.Kind, r.changes))
	}
	for _, e := range r.events {
		if e.warning {
			o = o.Warn(e.reason, "%s", e.message)
		} else {
			o = o.Note(e.reason, "%s", e.message)
		}
	}
	return o
}

// Summary describes changes for an event: the number of objects by action, one line per object, and the differences of
// objects that existed before. kind is the kind of the owner.
func Summary(kind string, changes []apply.Change) string {
	var lines []string
	for _, c := range changes {
		line := fmt.Sprintf("%s %s", c.Ref, c.Action)
		if len(c.HeldBy) > 0 {
			line = fmt.Sprintf("%s deletion requested, held by finalizers: %s", c.Ref, strings.Join(c.HeldBy, ", "))
		}
		if c.PreviousOwner != (apply.Owner{}) {
			line += fmt.Sprintf(", taken over from %s %s. If both declare it, remove it from one of them", kind,
				c.PreviousOwner)
		}
		lines = append(lines, line)
	}
	return summarize(apply.Summarize(changes).String(), lines, changes)
}

// summarize joins a headline, one line per object and the differences, and truncates them.
func summarize(headline string, lines []string, changes []apply.Change) string {
	return diff.Cut(strings.Join(slices.Concat([]string{headline}, FirstLines(lines), differences(changes)), "\n"),
		maxSummary)
}

// FirstLines returns at most the first 20 lines, followed by the number of omitted ones.
func FirstLines(lines []string) []string {
	if len(lines) <= maxLines {
		return lines
	}
	return append(lines[:maxLines:maxLines], fmt.Sprintf("and %d more", len(lines)-maxLines))
}

// differences returns what changed in objects that existed before.
func differences(changes []apply.Change) []string {
	var lines []string
	shown := 0
	for _, c := range changes {
		if c.Diff == "" || c.Action != apply.Configured || shown == MaxDiffs {
			continue
		}
		shown++
		lines = append(lines, c.Ref.String()+":")
		for l := range strings.SplitSeq(c.Diff, "\n") {
			lines = append(lines, "  "+l)
		}
	}
	return lines
}

// Effective returns the changes without objects that were unchanged or skipped.
func Effective(changes []apply.Change) []apply.Change {
	return slices.DeleteFunc(slices.Clone(changes),
		func(c apply.Change) bool { return c.Action == apply.Unchanged || c.Action == apply.Skipped })
}
