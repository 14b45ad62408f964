package sync

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

// summary words changes for an event: how many of each sort, a line an object, and what changed of those that were there.
func summary(changes []apply.Change) string {
	lines := []string{apply.Summarize(changes).String()}
	for n, c := range changes {
		if n == maxLines {
			lines = append(lines, fmt.Sprintf("and %d more", len(changes)-maxLines))
			break
		}
		lines = append(lines, fmt.Sprintf("%s %s", c.Ref, c.Action))
	}
	return diff.Cut(strings.Join(append(lines, details(changes)...), "\n"), maxWords)
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
	return slices.DeleteFunc(slices.Clone(changes), func(c apply.Change) bool { return c.Action == apply.Unchanged || c.Action == apply.Skipped })
}
