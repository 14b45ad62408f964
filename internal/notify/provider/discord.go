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

func (d *discord) Send(ctx context.Context, e event.Event) error {
	body := object{"embeds": []object{discordEmbed(MessageOf(e))},
		"allowed_mentions": object{"parse": []string{}}} // disables mentions
	body.setText("username", d.username)
	_, err := d.postJSON(ctx, d.to, body)
	return err
}

func discordEmbed(m Message) object {
	about := m.Summary
	if about != "" {
		about = boldMarkdown(fit(about, discordDescription/4, escapeMarkdown)) + "\n"
	}
	title := fit(m.Title(), discordTitle, escapeMarkdown)
	description := about + fit(m.Text, discordDescription-len(about), escapeMarkdown)
	out := object{"title": title, "description": description, "color": 0x2EA043}
	out.setText("url", m.RevisionURL)
	if m.Failed {
		out["color"] = 0xD13438
	}
	if !m.Time.IsZero() {
		out["timestamp"] = m.Time.UTC().Format(time.RFC3339)
	}
	if m.From != "" {
		out["footer"] = object{"text": m.From}
	}
	total := len(title) + len(description) + len(m.From)
	var fields []object
	add := func(name, value string, inline bool) {
		name, value = fit(name, discordName, escapeMarkdown), fit(value, discordValue, escapeMarkdown)
		if total += len(name) + len(value); total <= discordTotal {
			fields = append(fields, object{"name": name, "value": value, "inline": inline})
		}
	}
	if m.Hint != "" {
		add("What to do", m.Hint, false)
	}
	for _, f := range m.Facts() {
		add(f.Name, f.Value, true)
	}
	if len(fields) > 0 {
		out["fields"] = fields
	}
	return out
}
