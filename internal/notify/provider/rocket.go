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
	return &rocket{c, o.Channel, o.Username}, nil
}

type rocketMessage struct {
	Channel     string             `json:"channel,omitempty"`
	Username    string             `json:"username,omitempty"`
	Text        string             `json:"text"`
	ParseURLs   bool               `json:"parseUrls"` // no preview of what a text links to
	Attachments []rocketAttachment `json:"attachments"`
}

type rocketAttachment struct {
	Color     string        `json:"color"`
	Title     string        `json:"title"`
	TitleLink string        `json:"title_link,omitempty"`
	Text      string        `json:"text"`
	Fields    []rocketField `json:"fields,omitempty"`
	Time      string        `json:"ts,omitempty"`
}

type rocketField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

func (r *rocket) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	a := rocketAttachment{Color: color(m, "#"), Title: m.Title(), TitleLink: m.RevisionURL, Text: rocketEscape(m.Text)}
	if m.Hint != "" {
		a.Text += "\n\n*What to do:* " + rocketEscape(m.Hint)
	}
	if !m.Time.IsZero() {
		a.Time = m.Time.UTC().Format(time.RFC3339)
	}
	for _, f := range m.Facts() {
		a.Fields = append(a.Fields, rocketField{f.Name, rocketEscape(f.Value), len(f.Value) < 40})
	}
	_, err := r.postJSON(ctx, r.address, rocketMessage{Channel: r.channel, Username: r.username,
		Text: m.Mark() + " " + rocketEscape(cmp.Or(m.Summary, m.Title())), Attachments: []rocketAttachment{a}})
	return err
}

// rocketEscape keeps a text from mentioning people, as @all does anywhere in it, and from being a link or a style.
func rocketEscape(s string) string { return unmention(escapeMarkdown(s)) }
