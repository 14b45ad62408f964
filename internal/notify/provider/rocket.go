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

type rocketMessage struct {
	attachedMessage
	ParseURLs bool `json:"parseUrls"` // no preview of links
}

// attachedMessage is a message in the older format of Slack webhooks, which other chats support.
type attachedMessage struct {
	Channel     string       `json:"channel,omitempty"`
	Username    string       `json:"username,omitempty"`
	Text        string       `json:"text"`
	Attachments []attachment `json:"attachments"`
}

type attachment struct {
	Color     string            `json:"color"`
	Title     string            `json:"title"`
	TitleLink string            `json:"title_link,omitempty"`
	Text      string            `json:"text"`
	Fields    []attachmentField `json:"fields,omitempty"`
	Time      string            `json:"ts,omitempty"`
}

type attachmentField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

func (r *rocket) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	body := rocketMessage{attachedMessage: attachmentMessage(m)}
	body.Channel, body.Username = r.channel, r.username
	if !m.Time.IsZero() {
		body.Attachments[0].Time = m.Time.UTC().Format(time.RFC3339)
	}
	_, err := r.postJSON(ctx, r.address, body)
	return err
}

// attachmentMessage returns a message in Markdown with one attachment.
func attachmentMessage(m Message) attachedMessage {
	a := attachment{Color: color(m, "#"), Title: escapeMentions(m.Title()), TitleLink: m.RevisionURL,
		Text: escapeMentions(m.Text)}
	if m.Hint != "" {
		a.Text += "\n\n*What to do:* " + escapeMentions(m.Hint)
	}
	for _, f := range m.Facts() {
		a.Fields = append(a.Fields, attachmentField{Title: f.Name, Value: escapeMentions(f.Value),
			Short: len(f.Value) < 40})
	}
	return attachedMessage{Text: m.Mark() + " " + escapeMentions(cmp.Or(m.Summary, m.Title())),
		Attachments: []attachment{a}}
}

// escapeMentions escapes Markdown and mentions, such as @all.
func escapeMentions(s string) string { return breakMentions(escapeMarkdown(s)) }
