package provider

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// requestComment maintains one comment for each object on the change request in the metadata of its events.
type requestComment struct {
	host *githost.Client
	uid  string
}

func commentAt(kind githost.Kind) func(Options) (Provider, error) {
	return func(o Options) (Provider, error) {
		host, err := newGitHost(kind, o)
		return &requestComment{host, o.UID}, err
	}
}

// Send implements [Provider]. Events without a change request are skipped.
func (c *requestComment) Send(ctx context.Context, e event.Event) error {
	value := strings.TrimSpace(e.Metadata[event.ChangeRequest])
	if value == "" {
		return nil
	}
	number, err := strconv.Atoi(value)
	if err != nil || number <= 0 {
		return invalid("the change request of the event is not a number").
			WithHint("Set the annotation %s/%s of the object to the number of the pull or merge request",
				event.AnnotationGroup, event.ChangeRequest)
	}
	o := e.InvolvedObject
	key := strings.Join([]string{c.uid, o.Kind, o.Namespace, o.Name}, "/")
	return fromGitHost(c.host.Comment(ctx, githost.Comment{Request: number, Key: key, Body: commentOf(MessageOf(e))}))
}

// commentOf returns a message in Markdown. Texts of the event are rendered as code, which cannot contain mentions
// and links.
func commentOf(m Message) string {
	var b strings.Builder
	mark := "✅"
	if m.Failed {
		mark = "❌"
	}
	b.WriteString("### " + mark + " " + code(m.Title()) + "\n\n")
	if m.Summary != "" {
		b.WriteString(code(m.Summary) + "\n\n")
	}
	if m.Text != "" {
		fence := strings.Repeat("`", max(3, longestRun(m.Text, '`')+1))
		b.WriteString(fence + "\n" + m.Text + "\n" + fence + "\n\n")
	}
	if m.Hint != "" {
		b.WriteString("What to do: " + code(m.Hint) + "\n\n")
	}
	for _, f := range m.Facts() {
		value := code(f.Value)
		if f.Value == m.Revision && m.RevisionURL != "" {
			value = "[" + value + "](" + strings.ReplaceAll(m.RevisionURL, ")", "%29") + ")"
		}
		b.WriteString("- " + code(f.Name) + ": " + value + "\n")
	}
	b.WriteString("\n<sub>" + m.Time.UTC().Format(time.RFC3339) + "</sub>\n")
	return b.String()
}

// code returns a line as inline code in Markdown.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }

func longestRun(s string, char rune) int {
	longest, run := 0, 0
	for _, r := range s {
		if r != char {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
