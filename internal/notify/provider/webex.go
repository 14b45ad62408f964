package provider

import (
	"context"
	"strings"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// webexText is the maximum number of bytes of a message:
// https://developer.webex.com/docs/api/v1/messages/create-a-message
const webexText = 7439

// webex creates messages in a Webex space.
type webex struct {
	*client
	room, token string
}

func newWebex(o Options) (Provider, error) {
	c, err := newClient(o, "https://webexapis.com/v1/messages")
	if err != nil {
		return nil, err
	}
	token, err := o.token("the access token of the bot")
	if err != nil {
		return nil, err
	}
	if o.Channel == "" {
		return nil, invalid("the Provider has no channel").
			WithHint("Set spec.channel to the ID of the space; the bot must be a member")
	}
	return &webex{client: c, room: o.Channel, token: token}, nil
}

var webexMarkup = markup{
	escape: webexEscape,
	block:  func(s string) string { return strings.ReplaceAll(webexEscape(s), "\n", "  \n") },
	bold:   boldMarkdown,
	link:   linkMarkdown,
	end:    "  \n",
}

// webexEscape also escapes HTML: <@all> is a mention.
func webexEscape(s string) string {
	return strings.NewReplacer(`\<`, "&lt;", `\>`, "&gt;").Replace(escapeMarkdown(strings.ReplaceAll(s, "&", "&amp;")))
}

func (w *webex) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	_, err := w.postJSON(ctx, w.address, object{"roomId": w.room, "markdown": webexMarkup.render(m, webexText),
		"text": plain.render(m, webexText)}, // for clients without Markdown
		"Authorization", "Bearer "+w.token)
	return err
}
