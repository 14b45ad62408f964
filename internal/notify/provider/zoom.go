package provider

import (
	"cmp"
	"context"
	"net/url"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// zoom posts to the Incoming Webhook app of Zoom Team Chat:
// https://support.zoom.com/hc/en/article?id=zm_kb&sysparm_article=KB0067640
type zoom struct {
	*client
	to    *url.URL
	token string
}

func newZoom(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	token, err := o.token("the verification token of the webhook connection")
	if err != nil {
		return nil, err
	}
	to := *c.address
	q := to.Query()
	q.Set("format", "full")
	to.RawQuery = q.Encode()
	return &zoom{client: c, to: &to, token: token}, nil
}

// zoomMessage is without Markdown, so that its texts cannot contain links or mentions.
type zoomMessage struct {
	Markdown bool        `json:"is_markdown_support"`
	Content  zoomContent `json:"content"`
}

type zoomContent struct {
	Head zoomHead      `json:"head"`
	Body []zoomElement `json:"body"`
}

type zoomHead struct {
	Text  string    `json:"text"`
	Style zoomStyle `json:"style"`
	Sub   *zoomText `json:"sub_head,omitempty"`
}

type zoomStyle struct {
	Bold  bool   `json:"bold"`
	Color string `json:"color,omitempty"`
}

type zoomText struct {
	Text string `json:"text"`
}

type zoomElement struct {
	Type     string        `json:"type"`
	Color    string        `json:"sidebar_color,omitempty"`
	Text     string        `json:"text,omitempty"`
	Link     string        `json:"link,omitempty"`
	Style    *zoomStyle    `json:"style,omitempty"`
	Items    []zoomItem    `json:"items,omitempty"`
	Sections []zoomElement `json:"sections,omitempty"`
	Footer   string        `json:"footer,omitempty"`
}

type zoomItem struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Short    bool   `json:"short"`
	Editable bool   `json:"editable"`
}

func (z *zoom) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	head := zoomHead{Text: m.Title(), Style: zoomStyle{true, color(m, "#")}}
	if m.Summary != "" {
		head.Sub = &zoomText{m.Summary}
	}
	section := zoomElement{Type: "section", Color: color(m, "#"), Footer: m.From}
	add := func(e zoomElement) { section.Sections = append(section.Sections, e) }
	add(zoomElement{Type: "message", Text: cmp.Or(m.Text, m.Title())})
	if m.Hint != "" {
		add(zoomElement{Type: "message", Text: "What to do: " + m.Hint, Style: &zoomStyle{Bold: true}})
	}
	var items []zoomItem
	for _, f := range m.Facts() {
		items = append(items, zoomItem{Key: f.Name, Value: f.Value, Short: len(f.Value) < 40, Editable: false})
	}
	if len(items) > 0 {
		add(zoomElement{Type: "fields", Items: items})
	}
	if m.RevisionURL != "" {
		add(zoomElement{Type: "message", Text: "Show the commit", Link: m.RevisionURL})
	}
	_, err := z.postJSON(ctx, z.to, zoomMessage{Content: zoomContent{head, []zoomElement{section}}}, "Authorization",
		z.token)
	return err
}
