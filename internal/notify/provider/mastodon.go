package provider

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// mastodonText is the maximum number of characters of a status of an unmodified server:
// https://docs.joinmastodon.org/user/posting/#text
const mastodonText = 500

// mastodonVisibilities are the values of the parameter visibility: https://docs.joinmastodon.org/methods/statuses/#create
var mastodonVisibilities = []string{"public", "unlisted", "private", "direct"}

// mastodon posts statuses to the account of a token.
type mastodon struct {
	*client
	visibility, token string
}

func newMastodon(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	token, err := o.token("the access token of the application, with the scope write:statuses,")
	if err != nil {
		return nil, err
	}
	if o.Channel != "" && !slices.Contains(mastodonVisibilities, o.Channel) {
		return nil, invalid("the channel of the Provider is not a visibility of Mastodon").
			WithHint("Set spec.channel to %s, or leave it empty for the default of the account",
				strings.Join(mastodonVisibilities, ", "))
	}
	return &mastodon{client: c, visibility: o.Channel, token: token}, nil
}

type mastodonStatus struct {
	Status     string `json:"status"`
	Visibility string `json:"visibility,omitempty"`
}

// mastodonMarkup is plain text that mentions no account and has no tags.
var mastodonMarkup = markup{escape: unmentioned, block: unmentioned, bold: unchanged, link: plain.link, end: plain.end}

// mentionStart matches the start of a mention or tag; within a word, as in main@sha1:01234567, it is none.
var mentionStart = regexp.MustCompile(`(^|[^\w/])([@#])`)

func unmentioned(s string) string { return mentionStart.ReplaceAllString(s, "${1}${2}\u200b") }

// Send posts the event. The idempotency key is the same for each attempt, so that the server posts the status once.
func (m *mastodon) Send(ctx context.Context, e event.Event) error {
	body, err := encodeJSON(mastodonStatus{Status: mastodonMarkup.render(MessageOf(e), mastodonText),
		Visibility: m.visibility})
	if err != nil {
		return err
	}
	_, err = m.send(ctx, http.MethodPost, m.url("api/v1/statuses"), body, "Content-Type", "application/json",
		"Authorization", "Bearer "+m.token, "Idempotency-Key", transaction(e, body))
	return err
}
