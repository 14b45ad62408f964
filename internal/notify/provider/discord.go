package provider

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Limits of an embed in characters; all texts together are limited to 6000:
// https://discord.com/developers/docs/resources/message#embed-object
const (
	discordTitle       = 256
	discordDescription = 4096
	discordName        = 256
	discordValue       = 1024
	discordTotal       = 6000
	discordUsername    = 80
)

// discord executes a Discord webhook.
type discord struct {
	*client
	to       *url.URL
	username string
}

func newDiscord(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	to := *c.address
	// without the suffix for messages in the format of Slack
	to.Path = strings.TrimSuffix(strings.TrimSuffix(to.Path, "/"), "/slack")
	q := to.Query()
	q.Set("wait", "true") // respond after the message was created
	to.RawQuery = q.Encode()
	return &discord{client: c, to: &to, username: excerpt.Chars(o.Username, discordUsername)}, nil
}

type discordMessage struct {
	Username string          `json:"username,omitempty"`
	Embeds   []discordEmbed  `json:"embeds"`
	Mentions discordMentions `json:"allowed_mentions"`
}

// discordMentions disables mentions if Parse is empty.
type discordMentions struct {
	Parse []string `json:"parse"`
}

type discordEmbed struct {
	Title       string         `json:"title"`
	Description string         `json:"description"`
	URL         string         `json:"url,omitempty"`
	Color       int            `json:"color"`
	Fields      []discordField `json:"fields,omitempty"`
	Footer      *discordFooter `json:"footer,omitempty"`
	Timestamp   string         `json:"timestamp,omitempty"`
}

type discordField struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Inline bool   `json:"inline"`
}

type discordFooter struct {
	Text string `json:"text"`
}

func (d *discord) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	_, err := d.postJSON(ctx, d.to, discordMessage{Username: d.username, Embeds: []discordEmbed{discordEmbedOf(m)},
		Mentions: discordMentions{Parse: []string{}}})
	return err
}

func discordEmbedOf(m Message) discordEmbed {
	about := m.Summary
	if about != "" {
		about = boldMarkdown(fit(about, discordDescription/4, escapeMarkdown)) + "\n"
	}
	out := discordEmbed{
		Title:       fit(m.Title(), discordTitle, escapeMarkdown),
		Description: about + fit(m.Text, discordDescription-len(about), escapeMarkdown),
		URL:         m.RevisionURL,
		Color:       0x2EA043,
	}
	if m.Failed {
		out.Color = 0xD13438
	}
	if !m.Time.IsZero() {
		out.Timestamp = m.Time.UTC().Format(time.RFC3339)
	}
	if m.From != "" {
		out.Footer = &discordFooter{m.From}
	}
	total := len(out.Title) + len(out.Description) + len(m.From)
	add := func(name, value string, inline bool) {
		f := discordField{Name: fit(name, discordName, escapeMarkdown), Value: fit(value, discordValue, escapeMarkdown),
			Inline: inline}
		if total += len(f.Name) + len(f.Value); total <= discordTotal {
			out.Fields = append(out.Fields, f)
		}
	}
	if m.Hint != "" {
		add("What to do", m.Hint, false)
	}
	for _, f := range m.Facts() {
		add(f.Name, f.Value, true)
	}
	return out
}
