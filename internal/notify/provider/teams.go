package provider

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxTeamsLines is the maximum number of text lines in a card: a message is limited to 28 KB.
const maxTeamsLines = 60

// teams posts to a Microsoft Teams webhook: an Adaptive Card to a workflow, a MessageCard to a connector.
type teams struct {
	*client
	connector bool
}

func newTeams(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &teams{c, strings.HasSuffix(c.address.Hostname(), ".webhook.office.com")}, nil
}

func (t *teams) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	if !t.connector {
		_, err := t.postJSON(ctx, t.address, adaptiveCard(m))
		return err
	}
	a, err := t.postJSON(ctx, t.address, connectorCard(m))
	if err != nil {
		return err
	}
	return checkConnectorResponse(a)
}

// adaptiveCard returns a message with an Adaptive Card: https://adaptivecards.io/explorer/AdaptiveCard.html
func adaptiveCard(m Message) object {
	style, tone := "good", "Good"
	if m.Failed {
		style, tone = "attention", "Attention"
	}
	block := func(text string) object {
		return object{"type": "TextBlock", "text": escapeMarkdown(text), "wrap": true}
	}
	title := block(m.Title())
	title["size"], title["weight"], title["color"] = "Medium", "Bolder", tone
	body := []object{{"type": "Container", "style": style, "items": []object{title}}}
	if m.Summary != "" {
		summary := block(m.Summary)
		summary["weight"] = "Bolder"
		body = append(body, summary)
	}
	for n, line := range teamsLines(m.Text) {
		b := block(line)
		if n > 0 {
			b["spacing"] = "None"
		}
		body = append(body, b)
	}
	if m.Hint != "" {
		hint := block(m.Hint)
		hint["text"] = boldMarkdown("What to do:") + " " + escapeMarkdown(m.Hint)
		body = append(body, hint)
	}
	if facts := teamsFacts(m, "title"); len(facts) > 0 {
		body = append(body, object{"type": "FactSet", "facts": facts})
	}
	if m.From != "" {
		from := block(m.From)
		from["size"], from["isSubtle"] = "Small", true
		body = append(body, from)
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard",
		"version": "1.4", "msteams": object{"width": "Full"}, "body": body}
	if m.RevisionURL != "" {
		card["actions"] = []object{{"type": "Action.OpenUrl", "title": "Show the commit", "url": m.RevisionURL}}
	}
	return object{"type": "message",
		"attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}}}
}

// teamsLines returns the non-empty lines of a text. A card has no line breaks, so each line is a block.
func teamsLines(text string) []string {
	var lines []string
	for l := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(l) == "" {
			continue
		}
		if len(lines) == maxTeamsLines {
			return append(lines, "…")
		}
		lines = append(lines, l)
	}
	return lines
}

// teamsFacts returns the facts of a message. The field of their names differs between the formats.
func teamsFacts(m Message, name string) (out []object) {
	for _, f := range m.Facts() {
		out = append(out, object{name: f.Name, "value": escapeMarkdown(f.Value)})
	}
	return out
}

// connectorCard returns a MessageCard, the older format:
// https://learn.microsoft.com/outlook/actionable-messages/message-card-reference
func connectorCard(m Message) object {
	text := escapeMarkdown(strings.Join(teamsLines(m.Text), "\n\n"))
	if m.Hint != "" {
		text += "\n\n" + boldMarkdown("What to do:") + " " + escapeMarkdown(m.Hint)
	}
	section := object{"activityTitle": escapeMarkdown(m.Title())}
	section.setText("activitySubtitle", escapeMarkdown(m.Summary))
	section.setText("text", text)
	if facts := teamsFacts(m, "name"); len(facts) > 0 {
		section["facts"] = facts
	}
	card := object{"@type": "MessageCard", "@context": "https://schema.org/extensions", "themeColor": color(m, ""),
		"summary": m.Title(), "sections": []object{section}}
	if m.RevisionURL != "" {
		card["potentialAction"] = []object{{"@type": "OpenUri", "name": "Show the commit",
			"targets": []object{{"os": "default", "uri": m.RevisionURL}}}}
	}
	return card
}

// checkConnectorResponse checks the body of a connector's response. The status is 200 even if Teams rejected the
// message; the body contains the actual one.
func checkConnectorResponse(a response) error {
	result := strings.TrimSpace(string(a.body))
	var success json.Number // "1"
	if result == "" || json.Unmarshal(a.body, &success) == nil {
		return nil
	}
	if !strings.Contains(result, "HTTP error") { // it is not from a connector, and is not shown
		return fault.New(SendFailed, "Microsoft Teams rejected the message: the response is not that of a connector").
			WithHint("Check the address of the Provider")
	}
	f := fault.New(SendFailed, "Microsoft Teams rejected the message: %s", a.quote(result))
	switch {
	case strings.Contains(result, "429"):
		return f.After(max(a.wait, time.Minute)).WithHint("The event will be retried")
	case strings.Contains(result, "HTTP error 4"), strings.Contains(result, "HTTP error code 4"):
		return f.WithHint("Connectors are retired: create a webhook with Workflows and set its address").Final()
	}
	return f.WithHint("The event will be retried")
}
