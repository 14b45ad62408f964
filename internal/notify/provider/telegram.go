package provider

import (
	"context"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// telegramText is the maximum number of characters of a message: https://core.telegram.org/bots/api#sendmessage
const telegramText = 4096

// telegram sends messages as a Telegram bot.
type telegram struct {
	*client
	to     *url.URL
	chat   string
	thread int64 // topic of a forum; zero for none
}

// telegramToken matches a bot token. The token is part of the URL path, so other characters are not allowed.
var telegramToken = regexp.MustCompile(`^[0-9]+:[\w-]+$`)

func newTelegram(o Options) (Provider, error) {
	c, err := newClient(o, "https://api.telegram.org")
	if err != nil {
		return nil, err
	}
	token, err := o.token("the bot token from BotFather")
	if err != nil {
		return nil, err
	}
	if !telegramToken.MatchString(token) {
		return nil, invalid("the token is not a Telegram bot token").
			WithHint("Store the token from BotFather, NUMBER:LETTERS, in the key token of the Secret")
	}
	chat, topic, threaded := strings.Cut(o.Channel, ":")
	t := &telegram{client: c, to: c.url("bot"+token, "sendMessage"), chat: chat}
	if threaded {
		t.thread, err = strconv.ParseInt(topic, 10, 64)
	}
	if chat == "" || err != nil {
		return nil, invalid("the channel of the Provider is not a Telegram chat").
			WithHint("Set spec.channel to the ID of the chat or to @NAME of the channel; for a topic of a forum, " +
				"use CHAT:TOPIC")
	}
	return t, nil
}

var telegramMarkup = markup{escape: html.EscapeString, block: html.EscapeString, bold: boldHTML, link: linkHTML,
	end: "\n"}

func (t *telegram) Send(ctx context.Context, e event.Event) error {
	body := object{"chat_id": t.chat, "text": telegramMarkup.render(MessageOf(e), telegramText), "parse_mode": "HTML",
		"link_preview_options": object{"is_disabled": true}}
	if t.thread != 0 {
		body["message_thread_id"] = t.thread
	}
	a, err := t.postJSON(ctx, t.to, body)
	if err != nil {
		return err
	}
	var result struct {
		OK          bool   `json:"ok"`
		Description string `json:"description"`
	}
	if json.Unmarshal(a.body, &result) != nil || !result.OK {
		return fault.New(SendFailed, "%s rejected the message: %s", t.to.Host,
			a.quote(result.Description)).
			WithHint("Check the address of the Provider").Final()
	}
	return nil
}
