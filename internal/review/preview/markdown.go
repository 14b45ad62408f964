package preview

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxRows       = 100  // of the summary table
	maxObjectDiff = 4096 // bytes of the diff of one object
	maxListed     = 20   // notes, findings
)

// Markdown returns the preview as a comment of at most maxBytes bytes: a summary, a table of the owners, and their
// diffs, which are folded. Diffs that do not fit are left out, those of a low level first.
func (r *Result) Markdown(maxBytes int) string { return r.Comment(maxBytes, true) }

// Comment is like [Result.Markdown]. Without html, for hosts that show HTML as text, diffs are not folded.
func (r *Result) Comment(maxBytes int, html bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### Preview of `%s` into `%s`\n\n%s\n\n", Inline(r.To), Inline(r.From), r.Summary())
	for _, n := range r.Notes[:min(len(r.Notes), maxListed)] {
		fmt.Fprintf(&b, "> %s\n", Escape(n))
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
	}
	if len(r.Owners) > 0 {
		b.WriteString("| Applied by | Changes | Risk |\n|---|---|---|\n")
	}
	for n, o := range r.Owners {
		if n == maxRows {
			fmt.Fprintf(&b, "| and %d more | | |\n", len(r.Owners)-n)
			break
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", Escape(o.Owner.String()), Escape(o.words()), o.worst())
	}
	b.WriteString("\n")
	blocks := r.blocks(html)
	left, omitted := maxBytes-b.Len()-200, 0 // for the last line
	fits := map[int]bool{}
	order := make([]int, len(blocks))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(x, y int) int { return int(blocks[y].level - blocks[x].level) })
	for _, n := range order {
		if fits[n] = len(blocks[n].text) <= left; fits[n] {
			left -= len(blocks[n].text)
		} else {
			omitted++
		}
	}
	for n, block := range blocks {
		if fits[n] {
			b.WriteString(block.text)
		}
	}
	if omitted > 0 {
		fmt.Fprintf(&b, "\n%s left out, to stay within the size of a comment.\n",
			count(omitted, "object is", "objects are"))
	}
	return excerpt.Bytes(b.String(), maxBytes)
}

// block is the folded text of an object.
type block struct {
	text  string
	level risk.Level
}

func (r *Result) blocks(html bool) []block {
	var out []block
	for _, o := range r.Owners {
		if o.Error != "" {
			out = append(out, block{level: risk.High, text: fmt.Sprintf("**%s failed**\n\n```\n%s\n```\n\n",
				Escape(o.Owner.String()), fenced(excerpt.Bytes(o.Error, maxObjectDiff)))})
		}
		for _, f := range o.Findings {
			out = append(out, block{level: f.Level, text: fmt.Sprintf("- **%s** %s: %s (`%s`)\n", f.Level,
				Escape(o.Owner.String()), Escape(f.Message), Inline(f.Rule))})
		}
		for _, object := range o.Objects {
			out = append(out, object.block(html))
		}
	}
	return out
}

func (o *Object) block(html bool) block {
	var b strings.Builder
	if html {
		b.WriteString(o.folded())
	} else {
		fmt.Fprintf(&b, "**%s** `%s` %s", mark(o.Action), Inline(o.String()), o.Action)
		if o.Level > risk.Low {
			fmt.Fprintf(&b, " · **%s**", o.Level)
		}
		b.WriteString("\n\n")
	}
	for _, f := range o.Findings[:min(len(o.Findings), maxListed)] {
		if f.Level > risk.Low {
			fmt.Fprintf(&b, "- **%s** %s (`%s`)\n", f.Level, Escape(f.Message), Inline(f.Rule))
		}
	}
	if o.Diff != "" {
		fmt.Fprintf(&b, "\n```diff\n%s\n```\n", fenced(diff.Cut(o.Diff, maxObjectDiff)))
	}
	if html {
		b.WriteString("</details>\n")
	} else {
		b.WriteString("\n")
	}
	return block{text: b.String(), level: o.Level}
}

// folded is the line that is shown of a folded diff.
func (o *Object) folded() string {
	level := ""
	if o.Level > risk.Low {
		level = fmt.Sprintf(" · <b>%s</b>", o.Level)
	}
	return fmt.Sprintf("<details><summary>%s <code>%s</code> %s%s</summary>\n\n", mark(o.Action), html(o.String()),
		o.Action, level)
}

func mark(a risk.Action) string {
	return map[risk.Action]string{risk.Created: "+", risk.Configured: "~", risk.Recreated: "±", risk.Deleted: "-",
		risk.Hidden: "?", risk.Unchanged: "="}[a]
}

// Summary returns the counts and the level in words.
func (r *Result) Summary() string {
	if r.Changes() == 0 && r.Failed() == 0 {
		return "No object would change."
	}
	text := "No object would change"
	if parts := r.Count().words(); parts != "" {
		text = parts + ", risk " + r.Level.String()
	}
	if n := r.Failed(); n > 0 {
		text += "; " + count(n, "preview", "previews") + " failed"
	}
	return text + "."
}

// words lists the counts that are not zero.
func (c Counts) words() string {
	var parts []string
	for _, a := range risk.Actions {
		if c[a] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c[a], a))
		}
	}
	return strings.Join(parts, ", ")
}

func (o *Owner) words() string {
	counts := Counts{}
	for _, object := range o.Objects {
		counts[object.Action]++
	}
	parts := []string{counts.words(), excerpt.Line(o.Note, 200)}
	if o.Error != "" {
		parts = append(parts, "failed")
		if o.Before {
			parts[len(parts)-1] = "failed, as before the change"
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// worst returns the level of an owner, with the rules that say so.
func (o *Owner) worst() string {
	if o.Level <= risk.Low {
		return o.Level.String()
	}
	var rules []string
	found := slices.Clone(o.Findings)
	for _, object := range o.Objects {
		found = append(found, object.Findings...)
	}
	for _, f := range found {
		if name := "`" + Inline(f.Rule) + "`"; f.Level == o.Level && !slices.Contains(rules, name) && len(rules) < 5 {
			rules = append(rules, name)
		}
	}
	return fmt.Sprintf("**%s** %s", o.Level, strings.Join(rules, " "))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Escape makes a text safe for a line of Markdown: it cannot start a table cell, a link, HTML or a mention.
func Escape(text string) string {
	return strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", ">", "&gt;", "[", "\\[", "]", "\\]", "*", "\\*",
		"_", "\\_", "`", "\\`", "@", "&#64;", "#", "&#35;").Replace(printable(text, " "))
}

// html makes a text safe in HTML within Markdown.
func html(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "[", "&#91;", "]", "&#93;", "*", "&#42;", "_",
		"&#95;", "`", "&#96;", "@", "&#64;", "#", "&#35;", "|", "&#124;").Replace(printable(text, " "))
}

// Inline makes a text safe between backquotes.
func Inline(text string) string {
	return strings.NewReplacer("`", "'", "|", "/").Replace(printable(text, " "))
}

// fenced makes a text safe between fences.
func fenced(text string) string { return strings.ReplaceAll(printable(text, "\n"), "```", "'''") }

// printable removes control characters and marks of direction from a text, and replaces ends of lines.
func printable(text, end string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
	return strings.ReplaceAll(text, "\n", end)
}
