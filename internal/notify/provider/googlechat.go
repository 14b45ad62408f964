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

type googleMessage struct {
	Fallback string        `json:"fallbackText"`
	Cards    []googleCard  `json:"cardsV2"`
	Thread   *googleThread `json:"thread,omitempty"`
}

type googleThread struct {
	Key string `json:"threadKey"`
}

type googleCard struct {
	ID   string         `json:"cardId"`
	Card googleCardBody `json:"card"`
}

type googleCardBody struct {
	Header   googleHeader    `json:"header"`
	Sections []googleSection `json:"sections"`
}

type googleHeader struct {
	Title    string `json:"title"`
	Subtitle string `json:"subtitle,omitempty"`
}

type googleSection struct {
	Header  string         `json:"header,omitempty"`
	Widgets []googleWidget `json:"widgets"`
}

type googleWidget struct {
	Paragraph *googleParagraph `json:"textParagraph,omitempty"`
	Decorated *googleDecorated `json:"decoratedText,omitempty"`
	Buttons   *googleButtons   `json:"buttonList,omitempty"`
}

type googleParagraph struct {
	Text string `json:"text"`
}

type googleDecorated struct {
	Label string `json:"topLabel"`
	Text  string `json:"text"`
	Wrap  bool   `json:"wrapText"`
}

type googleButtons struct {
	Buttons []googleButton `json:"buttons"`
}

type googleButton struct {
	Text  string      `json:"text"`
	Click googleClick `json:"onClick"`
}

type googleClick struct {
	Open googleLink `json:"openLink"`
}

type googleLink struct {
	URL string `json:"url"`
}

func (g *googleChat) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	body := googleMessage{
		Fallback: m.Mark() + " " + m.Title(),
		Cards: []googleCard{{ID: "event",
			Card: googleCardBody{Header: googleHeader{Title: m.Mark() + " " + m.Title(), Subtitle: m.Summary},
				Sections: googleSections(m)}}},
	}
	if g.thread != "" {
		body.Thread = &googleThread{g.thread}
	}
	_, err := g.postJSON(ctx, g.to, body)
	return err
}

func googleSections(m Message) []googleSection {
	paragraph := func(text string) googleWidget { return googleWidget{Paragraph: &googleParagraph{text}} }
	text := paragraph(fit(cmp.Or(m.Text, m.Title()), googleText, linesHTML))
	sections := []googleSection{{Widgets: []googleWidget{text}}}
	if m.Hint != "" {
		sections = append(sections, googleSection{Header: "What to do",
			Widgets: []googleWidget{paragraph(html.EscapeString(m.Hint))}})
	}
	var facts []googleWidget
	for _, f := range m.Facts() {
		facts = append(facts, googleWidget{Decorated: &googleDecorated{Label: f.Name, Text: html.EscapeString(f.Value),
			Wrap: true}})
	}
	if m.RevisionURL != "" {
		facts = append(facts, googleWidget{Buttons: &googleButtons{
			[]googleButton{{Text: "Show the commit", Click: googleClick{Open: googleLink{URL: m.RevisionURL}}}}}})
	}
	if len(facts) > 0 {
		sections = append(sections, googleSection{Widgets: facts})
	}
	return sections
}
