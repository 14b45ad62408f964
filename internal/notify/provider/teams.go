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

type teamsMessage struct {
	Type        string            `json:"type"`
	Attachments []teamsAttachment `json:"attachments"`
}

type teamsAttachment struct {
	ContentType string    `json:"contentType"`
	Content     teamsCard `json:"content"`
}

// teamsCard is an Adaptive Card: https://adaptivecards.io/explorer/AdaptiveCard.html
type teamsCard struct {
	Schema  string            `json:"$schema"`
	Type    string            `json:"type"`
	Version string            `json:"version"`
	MSTeams map[string]string `json:"msteams"`
	Body    []teamsElement    `json:"body"`
	Actions []teamsAction     `json:"actions,omitempty"`
}

type teamsElement struct {
	Type    string         `json:"type"`
	Text    string         `json:"text,omitempty"`
	Size    string         `json:"size,omitempty"`
	Weight  string         `json:"weight,omitempty"`
	Color   string         `json:"color,omitempty"`
	Style   string         `json:"style,omitempty"`
	Spacing string         `json:"spacing,omitempty"`
	Subtle  bool           `json:"isSubtle,omitempty"`
	Wrap    bool           `json:"wrap,omitempty"`
	Facts   []teamsFact    `json:"facts,omitempty"`
	Items   []teamsElement `json:"items,omitempty"`
}

type teamsFact struct {
	Title string `json:"title"`
	Value string `json:"value"`
}

type teamsAction struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

func adaptiveCard(m Message) teamsMessage {
	style, tone := "good", "Good"
	if m.Failed {
		style, tone = "attention", "Attention"
	}
	block := func(text string) teamsElement {
		return teamsElement{Type: "TextBlock", Text: escapeMarkdown(text), Wrap: true}
	}
	title := block(m.Title())
	title.Size, title.Weight, title.Color = "Medium", "Bolder", tone
	body := []teamsElement{{Type: "Container", Style: style, Items: []teamsElement{title}}}
	if m.Summary != "" {
		summary := block(m.Summary)
		summary.Weight = "Bolder"
		body = append(body, summary)
	}
	for n, line := range teamsLines(m.Text) {
		b := block(line)
		if n > 0 {
			b.Spacing = "None"
		}
		body = append(body, b)
	}
	if m.Hint != "" {
		hint := block(m.Hint)
		hint.Text = boldMarkdown("What to do:") + " " + hint.Text
		body = append(body, hint)
	}
	newFact := func(f Field) teamsFact { return teamsFact{f.Name, escapeMarkdown(f.Value)} }
	if facts := teamsFacts(m, newFact); len(facts) > 0 {
		body = append(body, teamsElement{Type: "FactSet", Facts: facts})
	}
	if m.From != "" {
		from := block(m.From)
		from.Size, from.Subtle = "Small", true
		body = append(body, from)
	}
	card := teamsCard{Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard",
		Version: "1.4", MSTeams: map[string]string{"width": "Full"}, Body: body}
	if m.RevisionURL != "" {
		card.Actions = []teamsAction{{Type: "Action.OpenUrl", Title: "Show the commit", URL: m.RevisionURL}}
	}
	return teamsMessage{"message",
		[]teamsAttachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: card}}}
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

func teamsFacts[F any](m Message, of func(Field) F) []F {
	var out []F
	for _, f := range m.Facts() {
		out = append(out, of(f))
	}
	return out
}

// connectorMessage is a MessageCard, the older format:
// https://learn.microsoft.com/outlook/actionable-messages/message-card-reference
type connectorMessage struct {
	Type       string             `json:"@type"`
	Context    string             `json:"@context"`
	ThemeColor string             `json:"themeColor"`
	Summary    string             `json:"summary"`
	Sections   []connectorSection `json:"sections"`
	Actions    []connectorAction  `json:"potentialAction,omitempty"`
}

type connectorSection struct {
	Title    string          `json:"activityTitle"`
	Subtitle string          `json:"activitySubtitle,omitempty"`
	Text     string          `json:"text,omitempty"`
	Facts    []connectorFact `json:"facts,omitempty"`
}

type connectorFact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type connectorAction struct {
	Type    string              `json:"@type"`
	Name    string              `json:"name"`
	Targets []map[string]string `json:"targets"`
}

func connectorCard(m Message) connectorMessage {
	text := escapeMarkdown(strings.Join(teamsLines(m.Text), "\n\n"))
	if m.Hint != "" {
		text += "\n\n" + boldMarkdown("What to do:") + " " + escapeMarkdown(m.Hint)
	}
	newFact := func(f Field) connectorFact { return connectorFact{f.Name, escapeMarkdown(f.Value)} }
	c := connectorMessage{Type: "MessageCard", Context: "https://schema.org/extensions", ThemeColor: color(m, ""),
		Summary: m.Title(),
		Sections: []connectorSection{{Title: escapeMarkdown(m.Title()), Subtitle: escapeMarkdown(m.Summary), Text: text,
			Facts: teamsFacts(m, newFact)}}}
	if m.RevisionURL != "" {
		c.Actions = []connectorAction{{Type: "OpenUri", Name: "Show the commit",
			Targets: []map[string]string{{"os": "default", "uri": m.RevisionURL}}}}
	}
	return c
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
