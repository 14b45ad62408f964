// Package explain knows the reasons of conditions, events and errors: their codes, such as SLU-1101, and what to do.
// Its source is the page docs/troubleshooting.md.
package explain

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-gitops/sluice/docs"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Entry explains a reason.
type Entry struct {
	Code   string // such as SLU-1101; never given to another reason
	Reason string // such as GitOperationFailed
	Text   string // in Markdown
	// NeedsNoAction is true if the reason reports success or progress.
	NeedsNoAction bool
}

var (
	heading = regexp.MustCompile(`^### (SLU-\d{4}) (\w+)$`)
	row     = regexp.MustCompile(`^\| (SLU-\d{4}) \| (\w+) \| (.+) \|$`)
	suffix  = regexp.MustCompile(` \(SLU-\d{4}\)$`)
)

var entries = sync.OnceValue(func() []Entry { return parse(docs.Troubleshooting) })

var byReason = sync.OnceValue(func() map[string]Entry {
	known := map[string]Entry{}
	for _, e := range entries() {
		known[e.Reason] = e
	}
	return known
})

// All returns all entries in the order of the page.
func All() []Entry { return slices.Clone(entries()) }

// parse returns the entries of a page: a section each, or a row of a table for reasons that need no action.
func parse(page string) []Entry {
	var found []Entry
	inEntry := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		h, r := heading.FindStringSubmatch(line), row.FindStringSubmatch(line)
		switch {
		case h != nil:
			found, inEntry = append(found, Entry{Code: h[1], Reason: h[2]}), true
		case r != nil:
			found, inEntry = append(found, Entry{Code: r[1], Reason: r[2], Text: r[3], NeedsNoAction: true}), false
		case strings.HasPrefix(line, "#"):
			inEntry = false
		case inEntry:
			found[len(found)-1].Text += line + "\n"
		}
	}
	for i := range found {
		found[i].Text = strings.TrimSpace(found[i].Text)
	}
	return found
}

// Find returns the entry of a code or a reason, in upper or lower case.
func Find(word string) (Entry, bool) {
	for _, e := range entries() {
		if strings.EqualFold(word, e.Code) || strings.EqualFold(word, e.Reason) {
			return e, true
		}
	}
	return Entry{}, false
}

// WithCode returns the message with the code of the reason at its end, shortened to most bytes. A message that has a
// code, because it quotes another object, keeps only that one: its entry is about the cause.
func WithCode(reason, message string, most int) string {
	end := suffix.FindString(message)
	if e, isKnown := byReason()[reason]; isKnown && end == "" && !e.NeedsNoAction && message != "" {
		end = " (" + e.Code + ")"
	}
	return excerpt.Bytes(WithoutCode(message), most-len(end)) + end
}

// WithoutCode returns the message without a code at its end.
func WithoutCode(message string) string { return suffix.ReplaceAllString(message, "") }

var (
	link = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)
	term = strings.NewReplacer("**", "", "`", "'")
)

// Plain returns the text of the entry for a terminal: paragraphs without markup, one line each.
func (e Entry) Plain() []string {
	var paragraphs []string
	for p := range strings.SplitSeq(e.Text, "\n\n") {
		p = link.ReplaceAllStringFunc(strings.ReplaceAll(p, "\n", " "), func(found string) string {
			parts := link.FindStringSubmatch(found)
			if strings.HasPrefix(parts[2], "#") {
				return parts[1]
			}
			return parts[1] + " (docs/" + parts[2] + ")"
		})
		paragraphs = append(paragraphs, term.Replace(p))
	}
	return paragraphs
}
