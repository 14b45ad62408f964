package provider

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// lark posts cards to a custom bot in Lark or Feishu:
// https://open.larksuite.com/document/client-docs/bot-v3/add-custom-bot
type lark struct {
	*client
	secret string // signing secret of the bot; empty for none
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

// larkText is plain text without mentions and links.
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
	body := larkMessage{Type: "interactive", Card: larkCardOf(MessageOf(e))}
	if l.secret != "" {
		body.Timestamp = itoa(int(l.clock.Now().Unix()))
		body.Sign = larkSign(body.Timestamp, l.secret)
	}
	a, err := l.postJSON(ctx, l.address, body)
	if err != nil {
		return err
	}
	return l.checkResponse(a)
}

// larkSign returns the documented signature: an HMAC of no data, with timestamp and secret as the key.
func larkSign(timestamp, secret string) string {
	return base64.StdEncoding.EncodeToString(hmac.New(sha256.New, []byte(timestamp+"\n"+secret)).Sum(nil))
}

func larkCardOf(m Message) larkCard {
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
			Actions: []larkAction{{Tag: "button", Text: larkPlain("Show the commit"), URL: m.RevisionURL,
				Type: "default"}}})
	}
	if m.From != "" {
		elements = append(elements, larkElement{Tag: "note", Elements: []larkText{larkPlain(m.From)}})
	}
	return larkCard{Config: map[string]bool{"wide_screen_mode": true},
		Header: larkHeader{template, larkPlain(m.Title())}, Elements: elements}
}

// Response codes, from the documentation of custom bots.
const (
	larkBusy     = 11232 // too many messages
	larkBadSign  = 19021
	larkBadIP    = 19022
	larkBadWords = 19024 // the message lacks a keyword that the bot requires
)

// checkResponse checks the body of a response, whose status is always 200. Older bots use the field StatusCode.
func (l *lark) checkResponse(a response) error {
	var result struct {
		Code    int    `json:"code"`
		Old     int    `json:"StatusCode"`
		Message string `json:"msg"`
	}
	if err := json.Unmarshal(a.body, &result); err != nil {
		return fault.New(SendFailed, "%s did not respond like Lark", l.address.Host).
			WithHint("Check the address of the Provider").Final()
	}
	if result.Code == 0 {
		result.Code = result.Old
	}
	f := fault.New(SendFailed, "Lark rejected the message with code %d: %s", result.Code,
		a.quote(result.Message))
	switch result.Code {
	case 0:
		return nil
	case larkBusy:
		return f.After(max(a.wait, time.Minute)).WithHint("The event will be retried")
	case larkBadSign:
		f.Reason = meta.AuthenticationFailedReason
		return f.WithHint("Store the signing secret of the bot in the key token of the Secret, and check the " +
			"clock").Final()
	case larkBadIP:
		return f.WithHint("Add the egress address of the cluster to the IP allowlist of the bot").Final()
	case larkBadWords:
		return f.WithHint("Remove the keywords from the security settings of the bot, or add one to spec.summary of " +
			"the Alert").Final()
	}
	return f.WithHint("Check the address of the Provider; the bot may have been deleted").Final()
}
