package provider

import (
	"context"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// telegramText is how many characters a message of Telegram has: https://core.telegram.org/bots/api#sendmessage
const telegramText = 4096

// telegram sends messages as a bot of Telegram.
type telegram struct {
	*client
	to     *url.URL
	chat   string
	thread int64 // of a forum; zero for none
}

// telegramToken is what BotFather hands out. It is a part of the path, so nothing else may be one.
var telegramToken = regexp.MustCompile(`^[0-9]+:[\w-]+$`)

func newTelegram(o Options) (Provider, error) {
	c, err := newClient(o, "https://api.telegram.org")
	if err != nil {
		return nil, err
	}
	token, err := o.token("the bot's token, as BotFather tells it")
	if err != nil {
		return nil, err
	}
	if !telegramToken.MatchString(token) {
		return nil, invalid("the token is none of a bot of Telegram").
			WithHint("Put the token that BotFather tells, NUMBER:LETTERS, in the key token of the Secret")
	}
	chat, topic, threaded := strings.Cut(o.Channel, ":")
	t := &telegram{client: c, to: c.at("bot"+token, "sendMessage"), chat: chat}
	if threaded {
		t.thread, err = strconv.ParseInt(topic, 10, 64)
	}
	if chat == "" || err != nil {
		return nil, invalid("the channel of the Provider is no chat of Telegram").
			WithHint("Set spec.channel to the ID of the chat or to @NAME of the channel; CHAT:TOPIC is a topic " +
				"of a forum")
	}
	return t, nil
}

type telegramMessage struct {
	Chat    string          `json:"chat_id"`
	Thread  int64           `json:"message_thread_id,omitempty"`
	Text    string          `json:"text"`
	Mode    string          `json:"parse_mode"`
	Preview telegramPreview `json:"link_preview_options"`
}

type telegramPreview struct {
	Disabled bool `json:"is_disabled"`
}

var telegramMarkup = markup{escape: html.EscapeString, block: html.EscapeString, bold: boldHTML, link: linkHTML,
	end: "\n"}

func (t *telegram) Send(ctx context.Context, e event.Event) error {
	a, err := t.postJSON(ctx, t.to, telegramMessage{t.chat, t.thread, telegramMarkup.render(MessageOf(e), telegramText),
		"HTML", telegramPreview{true}})
	if err != nil {
		return err
	}
	var said struct {
		OK          bool   `json:"ok"`
		Description string `json:"description"`
	}
	if json.Unmarshal(a.body, &said) != nil || !said.OK {
		return fault.New(SendFailed, "%s did not take the message: %s", t.to.Host,
			excerpt.Chars(line(said.Description), maxWords)).
			WithHint("Check the address of the Provider").Final()
	}
	return nil
}
