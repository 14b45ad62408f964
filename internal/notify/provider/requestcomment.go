package provider

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// requestComment keeps one comment an object on the change request that its events name.
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

// Send implements [Provider]. An event of no change request is none of the host's.
func (c *requestComment) Send(ctx context.Context, e event.Event) error {
	said := strings.TrimSpace(e.Metadata[event.ChangeRequest])
	if said == "" {
		return nil
	}
	number, err := strconv.Atoi(said)
	if err != nil || number <= 0 {
		return invalid("the change request of the event is no number").
			WithHint("Set the annotation %s/%s of the object to the number of the pull or merge request",
				event.AnnotationGroup, event.ChangeRequest)
	}
	of := e.InvolvedObject
	key := strings.Join([]string{c.uid, of.Kind, of.Namespace, of.Name}, "/")
	return ofGitHost(c.host.Comment(ctx, githost.Comment{Request: number, Key: key, Body: commentOf(MessageOf(e))}))
}

// commentOf is a message in Markdown. What events say stands as code, where it names nobody and links nowhere.
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

// code is a line as code in Markdown.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }

func longestRun(s string, of rune) int {
	longest, run := 0, 0
	for _, r := range s {
		if r != of {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
