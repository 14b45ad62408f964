package provider

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Limits of a message in characters: https://zulip.com/api/send-message
const (
	zulipContent = 10000
	zulipTopic   = 60
)

// zulip sends messages to a topic of a channel as a Zulip bot.
type zulip struct {
	*client
	channel, topic, login string
}

func newZulip(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	password := o.secret("password")
	if o.Username == "" || password == "" {
		return nil, fault.New(TokenNotFound, "the Provider has no login for Zulip").
			WithHint("Store the address of the bot in the key username of the Secret, and its API key in the " +
				"key password").Final()
	}
	if !httpguts.ValidHeaderFieldValue(o.Username + password) {
		return nil, invalid("the login contains a line break or another invalid character").
			WithHint("Correct the keys username and password of the Secret")
	}
	channel, topic, _ := strings.Cut(o.Channel, "/")
	if channel == "" {
		return nil, invalid("the Provider has no channel").WithHint("Set spec.channel to CHANNEL/TOPIC")
	}
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte(o.Username+":"+password))
	return &zulip{client: c, channel: channel, topic: topic, login: login}, nil
}

// zulipMarkup renders all texts as code, which cannot contain mentions or styles.
var zulipMarkup = markup{
	escape: code,
	block: func(s string) string {
		fence := strings.Repeat("`", max(3, longestRun(s, '`')+1))
		return fence + "text\n" + s + "\n" + fence
	},
	bold: unchanged,
	link: linkMarkdown,
	end:  "\n",
}

func (z *zulip) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	form := url.Values{
		"type":    {"channel"},
		"to":      {z.channel},
		"topic":   {excerpt.Chars(cmp.Or(z.topic, m.Object), zulipTopic)},
		"content": {zulipMarkup.render(m, zulipContent)},
	}
	_, err := z.postForm(ctx, z.url("api/v1/messages"), form, "Authorization", z.login)
	return err
}
