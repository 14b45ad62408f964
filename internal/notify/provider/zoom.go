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

// Send posts a message without Markdown, so that its texts cannot contain links or mentions.
func (z *zoom) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	head := object{"text": m.Title(), "style": object{"bold": true, "color": color(m, "#")}}
	if m.Summary != "" {
		head["sub_head"] = object{"text": m.Summary}
	}
	sections := []object{{"type": "message", "text": cmp.Or(m.Text, m.Title())}}
	if m.Hint != "" {
		sections = append(sections, object{"type": "message", "text": "What to do: " + m.Hint,
			"style": object{"bold": true}})
	}
	var items []object
	for _, f := range m.Facts() {
		items = append(items, object{"key": f.Name, "value": f.Value, "short": len(f.Value) < 40, "editable": false})
	}
	if len(items) > 0 {
		sections = append(sections, object{"type": "fields", "items": items})
	}
	if m.RevisionURL != "" {
		sections = append(sections, object{"type": "message", "text": "Show the commit", "link": m.RevisionURL})
	}
	section := object{"type": "section", "sidebar_color": color(m, "#"), "sections": sections}
	section.setText("footer", m.From)
	body := object{"is_markdown_support": false, "content": object{"head": head, "body": []object{section}}}
	_, err := z.postJSON(ctx, z.to, body, "Authorization", z.token)
	return err
}
