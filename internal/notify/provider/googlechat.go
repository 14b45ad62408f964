package provider

import (
	"cmp"
	"context"
	"html"
	"net/url"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// googleText is the maximum number of bytes of the text in a card: a message is limited to 32,000.
const googleText = 12000

// googleChat posts cards to a Google Chat webhook:
// https://developers.google.com/workspace/chat/api/reference/rest/v1/cards
type googleChat struct {
	*client
	to     *url.URL
	thread string // key of the thread; empty for none
}

func newGoogleChat(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	to := *c.address
	q := to.Query()
	if (o.Channel != "" || q.Has("threadKey")) && !q.Has("messageReplyOption") {
		q.Set("messageReplyOption", "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD") // without it, the key is ignored
		to.RawQuery = q.Encode()
	}
	return &googleChat{client: c, to: &to, thread: o.Channel}, nil
}

func (g *googleChat) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	header := object{"title": m.Mark() + " " + m.Title()}
	header.setText("subtitle", m.Summary)
	body := object{
		"fallbackText": header["title"],
		"cardsV2":      []object{{"cardId": "event", "card": object{"header": header, "sections": googleSections(m)}}},
	}
	if g.thread != "" {
		body["thread"] = object{"threadKey": g.thread}
	}
	_, err := g.postJSON(ctx, g.to, body)
	return err
}

func googleSections(m Message) []object {
	paragraph := func(text string) []object { return []object{{"textParagraph": object{"text": text}}} }
	sections := []object{{"widgets": paragraph(fit(cmp.Or(m.Text, m.Title()), googleText, linesHTML))}}
	if m.Hint != "" {
		sections = append(sections, object{"header": "What to do", "widgets": paragraph(html.EscapeString(m.Hint))})
	}
	var facts []object
	for _, f := range m.Facts() {
		facts = append(facts, object{"decoratedText": object{"topLabel": f.Name, "text": html.EscapeString(f.Value),
			"wrapText": true}})
	}
	if m.RevisionURL != "" {
		button := object{"text": "Show the commit", "onClick": object{"openLink": object{"url": m.RevisionURL}}}
		facts = append(facts, object{"buttonList": object{"buttons": []object{button}}})
	}
	if len(facts) > 0 {
		sections = append(sections, object{"widgets": facts})
	}
	return sections
}
