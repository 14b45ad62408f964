package provider

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestHintFitsTheErrorCode checks services that answer with status 200 and an error code.
func TestHintFitsTheErrorCode(t *testing.T) {
	bot := &lark{client: &client{address: &url.URL{Host: "open.larksuite.com"}}}
	api := &slack{client: &client{address: &url.URL{Host: "slack.com"}}}
	for _, c := range []struct {
		check func(response) error
		body  string
		want  string
	}{
		{check: bot.checkResponse, body: fmt.Sprintf(`{"code":%d}`, larkBadSign),
			want: "Store the signing secret of the bot in the key token of the Secret, and check the clock"},
		{check: bot.checkResponse, body: fmt.Sprintf(`{"code":%d}`, larkBadIP),
			want: "Add the egress address of the cluster to the IP allowlist of the bot"},
		{check: bot.checkResponse, body: fmt.Sprintf(`{"code":%d}`, larkBadWords),
			want: "Remove the keywords from the " +
				"security settings of the bot, or add one to spec.summary of the Alert"},
		{check: bot.checkResponse, body: `{"code":1}`,
			want: "Check the address of the Provider; the bot may have been deleted"},
		{check: api.checkResponse, body: `{"error":"token_revoked"}`,
			want: "Renew the token in the Secret; the app needs the scope chat:write"},
		{check: api.checkResponse, body: `{"error":"not_in_channel"}`,
			want: "Check spec.channel and invite the app to the channel"},
		{check: api.checkResponse, body: `{"error":"invalid_blocks"}`,
			want: "See https://docs.slack.dev/reference/methods/chat.postMessage#errors"},
		{check: checkConnectorResponse, body: "Webhook message delivery failed with error: HTTP error 410",
			want: "Connectors are retired: create a webhook with Workflows and set its address"},
		{check: checkConnectorResponse, body: "HTTP error 429", want: "The event will be retried"},
	} {
		if f := fault.As(c.check(response{body: []byte(c.body)})); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", c.body, f, c.want)
		}
	}
}
