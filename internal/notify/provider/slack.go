package provider

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Limits of Slack blocks in characters: https://docs.slack.dev/reference/block-kit/blocks
const (
	slackSection = 3000
	slackField   = 2000
	slackFields  = 10
)

// slack posts to an incoming webhook, or with a token to chat.postMessage of the Web API. Other chats with
// compatible webhooks, such as Mattermost, do not support blocks: they get attachments in the older format. The
// webhooks of Slack are recognized by their path.
type slack struct {
	*client
	channel, username, token string
	api                      bool // chat.postMessage instead of a webhook
	blocks                   bool
}

const slackHooks = "/services/" // path prefix of Slack webhooks

func newSlack(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	s := &slack{client: c, channel: o.Channel, username: o.Username,
		api: strings.HasSuffix(c.address.Path, "/chat.postMessage")}
	s.blocks = s.api || strings.HasPrefix(c.address.Path, slackHooks)
	if s.api {
		if s.token, err = o.token("the bot token (xoxb-…)"); err != nil {
			return nil, err
		}
		if s.channel == "" {
			return nil, invalid("the Provider has no channel").
				WithHint("Set spec.channel to the name or the ID of the channel")
		}
	}
	return s, nil
}

// mrkdwn returns a text in the format of Slack, in which names of users and channels do not become mentions.
func mrkdwn(s string) object { return object{"type": "mrkdwn", "text": s, "verbatim": true} }

func (s *slack) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	if !s.blocks {
		body, _ := attachedMessage(m, s.channel, s.username)
		_, err := s.postJSON(ctx, s.address, body)
		return err
	}
	body := object{
		"text": fit(m.Mark()+" "+m.Title(), slackSection, slackEscape), // shown in push notifications
		// Only attachments have a colour, so the blocks are in one.
		"attachments": []object{{"color": color(m, "#"), "fallback": fit(m.Text, slackSection, slackEscape),
			"blocks": slackBlocks(m)}},
	}
	body.setText("channel", s.channel)
	body.setText("username", s.username)
	if !s.api {
		_, err := s.postJSON(ctx, s.address, body)
		return err
	}
	a, err := s.postJSON(ctx, s.address, body, "Authorization", "Bearer "+s.token)
	if err != nil {
		return err
	}
	return s.checkResponse(a)
}

func slackBlocks(m Message) []object {
	section := func(text string) object { return object{"type": "section", "text": mrkdwn(text)} }
	var blocks []object
	if m.Summary != "" {
		blocks = append(blocks, section("*"+fit(m.Summary, slackSection-2, slackEscape)+"*"))
	}
	if m.Text != "" {
		blocks = append(blocks, section(fit(m.Text, slackSection, slackEscape)))
	}
	if m.Hint != "" {
		blocks = append(blocks, section("*What to do:* "+fit(m.Hint, slackSection-20, slackEscape)))
	}
	var fields []object
	add := func(name, value string) {
		if len(fields) < slackFields {
			fields = append(fields, mrkdwn("*"+slackEscape(name)+"*\n"+value))
		}
	}
	if m.Revision != "" {
		add("Revision", slackLink(m.Revision, m.RevisionURL))
	}
	for _, f := range m.Fields {
		add(f.Name, fit(f.Value, slackField-maxName-5, slackEscape))
	}
	if len(fields) > 0 {
		blocks = append(blocks, object{"type": "section", "fields": fields})
	}
	if m.From != "" {
		blocks = append(blocks, object{"type": "context", "elements": []object{mrkdwn(slackEscape(m.From))}})
	}
	return blocks
}

// slackEscape escapes mentions, links and commands:
// https://docs.slack.dev/messaging/formatting-message-text#escaping
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

func slackLink(label, to string) string {
	label = slackEscape(label)
	if to == "" {
		return label
	}
	return "<" + strings.ReplaceAll(slackEscape(to), "|", "%7C") + "|" + label + ">"
}

// Errors of chat.postMessage: of the token, of the channel, and temporary ones.
var (
	slackAuth = []string{"invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive",
		"access_denied", "missing_scope",
		"no_permission", "not_allowed_token_type", "org_login_required", "ekm_access_denied",
		"two_factor_setup_required"}
	slackTarget = []string{"channel_not_found", "not_in_channel", "is_archived", "restricted_action",
		"restricted_action_read_only_channel"}
	slackTemporary = []string{"rate_limited", "ratelimited", "message_limit_exceeded", "fatal_error", "internal_error",
		"request_timeout", "service_unavailable",
		"team_added_to_org", "accesslimited"}
)

// checkResponse checks the body of a chat.postMessage response, whose status is always 200.
func (s *slack) checkResponse(a response) error {
	var result struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(a.body, &result); err != nil {
		return fault.New(SendFailed, "%s did not respond like Slack", s.address.Host).
			WithHint("Check the address of the Provider").Final()
	}
	if result.OK {
		return nil
	}
	f := fault.New(SendFailed, "Slack rejected the message: %s", a.quote(result.Error)).
		After(a.wait)
	switch {
	case slices.Contains(slackTemporary, result.Error):
		if strings.Contains(result.Error, "limit") {
			f = f.After(max(a.wait, time.Minute))
		}
		return f.WithHint("The event will be retried")
	case slices.Contains(slackAuth, result.Error):
		f.Reason = meta.AuthenticationFailedReason
		return f.WithHint("Renew the token in the Secret; the app needs the scope chat:write").Final()
	case slices.Contains(slackTarget, result.Error):
		return f.WithHint("Check spec.channel and invite the app to the channel").Final()
	}
	return f.WithHint("See %s",
		"https://docs.slack.dev/reference/methods/chat.postMessage#errors").Final()
}

// color returns the RGB colour of a message: red for failures, else green.
func color(m Message, prefix string) string {
	if m.Failed {
		return prefix + "D13438"
	}
	return prefix + "2EA043"
}
