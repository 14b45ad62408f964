package kustomization

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/diff"
)

const (
	maxLines = 20      // how many objects a summary names
	maxDiffs = 10      // of how many it tells what changed
	maxWords = 8 << 10 // how many bytes it may have
)

// summary words changes for an event: how many of each sort, a line an object, and what changed of those that
// were there.
func summary(changes []apply.Change) string {
	var lines []string
	for _, c := range changes {
		line := fmt.Sprintf("%s %s", c.Ref, c.Action)
		if c.PreviousOwner != (apply.Owner{}) {
			line += fmt.Sprintf(", taken over from Kustomization %s: if that declares it still, remove it from one "+
				"of the two", c.PreviousOwner)
		}
		lines = append(lines, line)
	}
	return told(apply.Summarize(changes).String(), lines, changes)
}

// told puts a headline, lines of objects, and what changed of them into a text that is not too long.
func told(head string, lines []string, changes []apply.Change) string {
	return diff.Cut(strings.Join(slices.Concat([]string{head}, few(lines), details(changes)), "\n"), maxWords)
}

// few keeps a long list readable: its first lines, and how many more there are.
func few(lines []string) []string {
	if len(lines) <= maxLines {
		return lines
	}
	return append(lines[:maxLines:maxLines], fmt.Sprintf("and %d more", len(lines)-maxLines))
}

// details tells what changed of objects that were there.
func details(changes []apply.Change) []string {
	var lines []string
	told := 0
	for _, c := range changes {
		if c.Diff == "" || c.Action != apply.Configured || told == maxDiffs {
			continue
		}
		told++
		lines = append(lines, c.Ref.String()+":")
		for l := range strings.SplitSeq(c.Diff, "\n") {
			lines = append(lines, "  "+l)
		}
	}
	return lines
}

// effective leaves out what stayed as it was.
func effective(changes []apply.Change) []apply.Change {
	return slices.DeleteFunc(slices.Clone(changes),
		func(c apply.Change) bool { return c.Action == apply.Unchanged || c.Action == apply.Skipped })
}
