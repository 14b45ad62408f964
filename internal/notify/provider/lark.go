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

// larkPlain is plain text without mentions and links.
func larkPlain(s string) object { return object{"tag": "plain_text", "content": s} }

func (l *lark) Send(ctx context.Context, e event.Event) error {
	body := object{"msg_type": "interactive", "card": larkCard(MessageOf(e))}
	if l.secret != "" {
		timestamp := itoa(int(l.clock.Now().Unix()))
		body["timestamp"], body["sign"] = timestamp, larkSign(timestamp, l.secret)
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

func larkCard(m Message) object {
	template := "green"
	if m.Failed {
		template = "red"
	}
	div := func(text string) object { return object{"tag": "div", "text": larkPlain(text)} }
	var elements []object
	for _, text := range []string{m.Summary, m.Text} {
		if text != "" {
			elements = append(elements, div(text))
		}
	}
	if m.Hint != "" {
		elements = append(elements, div("What to do: "+m.Hint))
	}
	var fields []object
	for _, f := range m.Facts() {
		fields = append(fields, object{"is_short": len(f.Value) < 40, "text": larkPlain(f.Name + "\n" + f.Value)})
	}
	if len(fields) > 0 {
		elements = append(elements, object{"tag": "hr"}, object{"tag": "div", "fields": fields})
	}
	if m.RevisionURL != "" {
		button := object{"tag": "button", "text": larkPlain("Show the commit"), "url": m.RevisionURL, "type": "default"}
		elements = append(elements, object{"tag": "action", "actions": []object{button}})
	}
	if m.From != "" {
		elements = append(elements, object{"tag": "note", "elements": []object{larkPlain(m.From)}})
	}
	return object{"config": object{"wide_screen_mode": true}, "elements": elements,
		"header": object{"template": template, "title": larkPlain(m.Title())}}
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
