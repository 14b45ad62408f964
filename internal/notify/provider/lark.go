package provider

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// lark posts cards to a custom bot of Lark or Feishu:
// https://open.larksuite.com/document/client-docs/bot-v3/add-custom-bot
type lark struct {
	*client
	secret string // that the bot's requests are signed with; empty for none
}

func newLark(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &lark{c, o.secret("token")}, nil
}

type larkMessage struct {
	Timestamp string   `json:"timestamp,omitempty"`
	Sign      string   `json:"sign,omitempty"`
	Type      string   `json:"msg_type"`
	Card      larkCard `json:"card"`
}

type larkCard struct {
	Config   map[string]bool `json:"config"`
	Header   larkHeader      `json:"header"`
	Elements []larkElement   `json:"elements"`
}

type larkHeader struct {
	Template string   `json:"template"`
	Title    larkText `json:"title"`
}

// larkText is plain: nothing in it is a mention or a link.
type larkText struct {
	Tag     string `json:"tag"`
	Content string `json:"content"`
}

func larkPlain(s string) larkText { return larkText{"plain_text", s} }

type larkElement struct {
	Tag      string       `json:"tag"`
	Text     *larkText    `json:"text,omitempty"`
	Fields   []larkField  `json:"fields,omitempty"`
	Actions  []larkAction `json:"actions,omitempty"`
	Elements []larkText   `json:"elements,omitempty"`
}

type larkField struct {
	Short bool     `json:"is_short"`
	Text  larkText `json:"text"`
}

type larkAction struct {
	Tag  string   `json:"tag"`
	Text larkText `json:"text"`
	URL  string   `json:"url"`
	Type string   `json:"type"`
}

func (l *lark) Send(ctx context.Context, e event.Event) error {
	body := larkMessage{Type: "interactive", Card: cardOf(MessageOf(e))}
	if l.secret != "" {
		body.Timestamp = itoa(int(l.clock.Now().Unix()))
		body.Sign = larkSign(body.Timestamp, l.secret)
	}
	a, err := l.postJSON(ctx, l.address, body)
	if err != nil {
		return err
	}
	return l.judge(a)
}

// larkSign signs nothing, with time and secret as the key: so it is documented.
func larkSign(timestamp, secret string) string {
	return base64.StdEncoding.EncodeToString(hmac.New(sha256.New, []byte(timestamp+"\n"+secret)).Sum(nil))
}

func cardOf(m Message) larkCard {
	template := "green"
	if m.Failed {
		template = "red"
	}
	div := func(text string) larkElement { t := larkPlain(text); return larkElement{Tag: "div", Text: &t} }
	var elements []larkElement
	for _, text := range []string{m.Summary, m.Text} {
		if text != "" {
			elements = append(elements, div(text))
		}
	}
	if m.Hint != "" {
		elements = append(elements, div("What to do: "+m.Hint))
	}
	var fields []larkField
	for _, f := range m.Facts() {
		fields = append(fields, larkField{len(f.Value) < 40, larkPlain(f.Name + "\n" + f.Value)})
	}
	if len(fields) > 0 {
		elements = append(elements, larkElement{Tag: "hr"}, larkElement{Tag: "div", Fields: fields})
	}
	if m.RevisionURL != "" {
		elements = append(elements, larkElement{Tag: "action",
			Actions: []larkAction{{"button", larkPlain("Show the commit"), m.RevisionURL, "default"}}})
	}
	if m.From != "" {
		elements = append(elements, larkElement{Tag: "note", Elements: []larkText{larkPlain(m.From)}})
	}
	return larkCard{Config: map[string]bool{"wide_screen_mode": true},
		Header: larkHeader{template, larkPlain(m.Title())}, Elements: elements}
}

// Codes of answers, as the page of custom bots lists them.
const (
	larkBusy     = 11232 // too many messages
	larkBadSign  = 19021
	larkBadIP    = 19022
	larkBadWords = 19024 // a keyword that the bot asks for is not in the message
)

// judge reads the answer of Lark, whose status is 200 whatever comes of it. Older bots write the code as StatusCode.
func (l *lark) judge(a answer) error {
	var said struct {
		Code    int    `json:"code"`
		Old     int    `json:"StatusCode"`
		Message string `json:"msg"`
	}
	if err := json.Unmarshal(a.body, &said); err != nil {
		return fault.New(SendFailed, "%s did not answer as Lark does", l.address.Host).
			WithHint("Check the address of the Provider").Final()
	}
	if said.Code == 0 {
		said.Code = said.Old
	}
	f := fault.New(SendFailed, "Lark refused the message with code %d: %s", said.Code,
		excerpt.Chars(line(said.Message), maxWords))
	switch said.Code {
	case 0:
		return nil
	case larkBusy:
		return f.After(max(a.wait, time.Minute)).WithHint("It is sent again later")
	case larkBadSign:
		f.Reason = meta.AuthenticationFailedReason
		return f.WithHint("Put the bot's signature secret in the key token of the Secret, and check the clock").Final()
	case larkBadIP:
		return f.WithHint("Add the address that the cluster sends from to the bot's allowed addresses").Final()
	case larkBadWords:
		return f.WithHint("Remove the keywords from the bot's security settings, or put one in spec.summary of " +
			"the Alert").Final()
	}
	return f.WithHint("Check the address of the Provider: the bot may have been removed").Final()
}
