package review

import (
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxComment = 60_000 // bytes
	maxListed  = 20     // entries of a list in a comment
	maxExtra   = 12_000 // bytes of a comment before the preview
)

// comment returns the comment of a review, of at most limit bytes.
func comment(d *Detail, page string, limit int, html bool) string {
	limit = min(limit, maxComment)
	var b strings.Builder
	fmt.Fprintf(&b, "**Review: %s.**", strings.TrimSuffix(preview.Escape(d.Text), "."))
	if page != "" {
		fmt.Fprintf(&b, " [All diffs](%s)", page)
	}
	b.WriteString("\n\n")
	if d.Error != "" {
		fmt.Fprintf(&b, "It could not be reviewed: %s\n", preview.Escape(excerpt.Line(d.Error, 2000)))
		return excerpt.Bytes(b.String(), limit)
	}
	if d.Sandboxed {
		b.WriteString("The author is not in the list of allowed authors, so the change was compared without the " +
			"cluster, nothing was decrypted, and no credentials were used.\n\n")
	}
	list(&b, "Applications", d.Blast.Applications)
	list(&b, "Clusters", d.Blast.Clusters)
	list(&b, "Namespaces", d.Blast.Namespaces)
	b.WriteString("\n")
	gates(&b, d.Gates)
	var missing []string
	for _, i := range d.Images {
		if i.Exists != nil && !*i.Exists {
			missing = append(missing, i.Name)
		}
	}
	list(&b, "Images that do not exist", missing)
	var problems []string
	for _, p := range d.Schema {
		problems = append(problems, p.Object+": "+excerpt.Line(p.Message, 300))
	}
	list(&b, "Schema errors", problems)
	extra := excerpt.Bytes(b.String(), min(maxExtra, limit/2))
	return excerpt.Bytes(extra+"\n"+d.Preview.Comment(limit-len(extra)-1, html), limit)
}

// list writes a list in one line.
func list(b *strings.Builder, what string, all []string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "- **%s** (%d): ", what, len(all))
	for n, one := range all[:min(len(all), maxListed)] {
		if n > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + preview.Inline(excerpt.Line(one, 300)) + "`")
	}
	if len(all) > maxListed {
		b.WriteString(", …")
	}
	b.WriteString("\n")
}

// gates writes a table of the gates that would hold the change.
func gates(b *strings.Builder, asking []*preview.AskingObject) {
	rows := 0
	for _, o := range asking {
		for _, g := range o.Gates {
			if g.Passes || rows == maxListed {
				continue
			}
			if rows++; rows == 1 {
				b.WriteString("| Held | Gate | Needs |\n|---|---|---|\n")
			}
			needs := g.Message
			if g.Approvals != nil {
				needs = preview.Approvals(g.Approvals)
			}
			fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", preview.Inline(o.Kind+"/"+o.Namespace+"/"+o.Name),
				preview.Inline(g.Gate), preview.Escape(excerpt.Line(needs, 300)))
		}
	}
	if rows > 0 {
		b.WriteString("\n")
	}
}
