package provider

import (
	"cmp"
	"context"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// rocket posts to an incoming webhook of Rocket.Chat: https://developer.rocket.chat/apidocs/post-message
type rocket struct {
	*client
	channel, username string
}

func newRocket(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &rocket{client: c, channel: o.Channel, username: o.Username}, nil
}

func (r *rocket) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	body, attachment := attachedMessage(m, r.channel, r.username)
	body["parseUrls"] = false // no preview of links
	if !m.Time.IsZero() {
		attachment["ts"] = m.Time.UTC().Format(time.RFC3339)
	}
	_, err := r.postJSON(ctx, r.address, body)
	return err
}

// attachedMessage returns a message with one attachment, in the older format of Slack webhooks, which other chats
// support.
func attachedMessage(m Message, channel, username string) (body, attachment object) {
	text := escapeMentions(m.Text)
	if m.Hint != "" {
		text += "\n\n*What to do:* " + escapeMentions(m.Hint)
	}
	attachment = object{"color": color(m, "#"), "title": escapeMentions(m.Title()), "text": text}
	attachment.setText("title_link", m.RevisionURL)
	var fields []object
	for _, f := range m.Facts() {
		fields = append(fields, object{"title": f.Name, "value": escapeMentions(f.Value), "short": len(f.Value) < 40})
	}
	if len(fields) > 0 {
		attachment["fields"] = fields
	}
	body = object{"text": m.Mark() + " " + escapeMentions(cmp.Or(m.Summary, m.Title())),
		"attachments": []object{attachment}}
	body.setText("channel", channel)
	body.setText("username", username)
	return body, attachment
}

// escapeMentions escapes Markdown and mentions, such as @all.
func escapeMentions(s string) string { return breakMentions(escapeMarkdown(s)) }
