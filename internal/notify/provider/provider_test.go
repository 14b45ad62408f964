package provider

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// changed returns the options of a setup after a change.
func changed(s setup, change func(*Options)) Options {
	o := s.options("https://host.example")
	change(&o)
	return o
}

var invalidOptionsCases = map[string]struct {
	options Options
	reason  string
	want    string
}{
	"unknown type": {reason: ValidationFailed, want: "pigeon",
		options: Options{Type: "pigeon"}},
	"no address": {reason: ValidationFailed, want: "no address",
		options: Options{Type: "slack"}},
	"address without scheme": {reason: ValidationFailed, want: "not an HTTP URL",
		options: Options{Type: "slack", Address: "wEbHooKsEcReT"}},
	"address with file scheme": {reason: ValidationFailed, want: "not an HTTP URL",
		options: Options{Type: "slack", Address: "file:///etc/wEbHooKsEcReT"}},
	"malformed address": {reason: ValidationFailed, want: "not an HTTP URL. Write it as https://HOST/PATH",
		options: Options{Type: "slack", Address: "https://host/%zzwEbHooKsEcReT"}},
	"slack without token": {reason: TokenNotFound, want: "no token",
		options: changed(chats["slack-api"], func(o *Options) { delete(o.Secret, "token") })},
	"slack without channel": {reason: ValidationFailed, want: "Set spec.channel to the name or the ID of the " +
		"channel",
		options: changed(chats["slack-api"], func(o *Options) { o.Channel = "" })},
	"webex without token": {reason: TokenNotFound, want: "no token",
		options: changed(chats["webex"], func(o *Options) { delete(o.Secret, "token") })},
	"webex without channel": {reason: ValidationFailed, want: "Set spec.channel to the ID of the space; the bot " +
		"must be a member",
		options: changed(chats["webex"], func(o *Options) { o.Channel = "" })},
	"telegram with a path as token": {reason: ValidationFailed, want: "Store the token from BotFather, " +
		"NUMBER:LETTERS, in the key token of the Secret",
		options: changed(chats["telegram"], func(o *Options) { o.Secret["token"] = []byte("/../t0kenSecret") })},
	"mastodon with a channel": {reason: ValidationFailed, want: "Set spec.channel to public, unlisted, private, " +
		"direct, or leave it empty for the default of the account",
		options: changed(chats["mastodon"], func(o *Options) { o.Channel = "general" })},
	"telegram without chat": {reason: ValidationFailed, want: "Set spec.channel to the ID of the chat or to " +
		"@NAME of the channel; for a topic of a forum, use CHAT:TOPIC",
		options: changed(chats["telegram"], func(o *Options) { o.Channel = "" })},
	"telegram with invalid topic": {reason: ValidationFailed, want: "spec.channel",
		options: changed(chats["telegram"], func(o *Options) { o.Channel = "-1:x" })},
	"matrix without token": {reason: TokenNotFound, want: "no token",
		options: changed(chats["matrix"], func(o *Options) { delete(o.Secret, "token") })},
	"matrix with an alias as room": {reason: ValidationFailed, want: "Set spec.channel to the internal ID of the " +
		"room, !ID:HOST",
		options: changed(chats["matrix"], func(o *Options) { o.Channel = "#ops:host" })},
	"zulip without login": {reason: TokenNotFound, want: "no login for Zulip. Store the address of the bot in " +
		"the key username of the Secret, and its API key in the key password",
		options: changed(chats["zulip"], func(o *Options) { delete(o.Secret, "password") })},
	"zulip without channel": {reason: ValidationFailed, want: "Set spec.channel to CHANNEL/TOPIC",
		options: changed(chats["zulip"], func(o *Options) { o.Channel = "" })},
	"zoom without token": {reason: TokenNotFound, want: "no token",
		options: changed(chats["zoom"], func(o *Options) { delete(o.Secret, "token") })},
	"token with line break": {reason: ValidationFailed, want: "line break",
		options: changed(chats["webex"], func(o *Options) {
			o.Secret["token"] = []byte("t0kenSecret\r\nX-Evil: 1")
		})},
	"login with line break": {reason: ValidationFailed, want: "line break or another invalid character. Correct " +
		"the keys username and password of the Secret",
		options: changed(chats["zulip"], func(o *Options) { o.Secret["username"] = []byte("a\nX-Evil: 1") })},
	"header with line break": {reason: ValidationFailed, want: "one line",
		options: changed(chats["discord"],
			func(o *Options) { o.Headers = http.Header{"X-A": {"t0kenSecret\r\nX-Evil: 1"}} })},
	"header with a colon in the name": {reason: ValidationFailed, want: "not valid. Correct the key headers of " +
		"the Secret: names consist of letters, digits and dashes, values are one line",
		options: changed(chats["discord"], func(o *Options) { o.Headers = http.Header{"X:A": {"1"}} })},
}

// TestInvalidOptions checks that New returns terminal faults without credentials.
func TestInvalidOptions(t *testing.T) {
	for name, c := range invalidOptionsCases {
		_, err := New(c.options)
		f := fault.As(err)
		if f == nil || !f.Terminal || f.Reason != c.reason || !strings.Contains(f.Error(), c.want) {
			t.Errorf("%s: got %v, want a terminal fault with reason %s and text %q", name, err, c.reason, c.want)
			continue
		}
		expectNoSecrets(t, err)
	}
}

func TestSecretOverridesSpec(t *testing.T) {
	var path, body string
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(content)
	})
	p := newProvider(t, Options{Type: "slack", Address: "https://host.invalid/other", Username: "spec",
		Secret: map[string][]byte{"address": []byte(server + "/secret\n"), "username": []byte("secret\n")}})
	if err := p.Send(testContext(t), success()); err != nil {
		t.Fatal(err)
	}
	if path != "/secret" || !strings.Contains(body, `"username":"secret"`) {
		t.Errorf("request to %s with body %s", path, body)
	}
}

// TestMatrixRetryHasSameTransaction checks that attempts of one event have the same transaction ID.
func TestMatrixRetryHasSameTransaction(t *testing.T) {
	var paths []string
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { paths = append(paths, r.URL.Path) })
	other := failure()
	other.Metadata[event.Token] = "another change of the same revision"
	for _, e := range []event.Event{failure(), failure(), other} {
		if err := newProvider(t, chats["matrix"].options(server)).Send(testContext(t), e); err != nil {
			t.Fatal(err)
		}
	}
	if paths[0] != paths[1] || paths[1] == paths[2] {
		t.Errorf("got transactions %q", paths)
	}
}

// TestMarkupIsEscaped sends markup of all chats in each text of an event.
func TestMarkupIsEscaped(t *testing.T) {
	const evil = "<!channel> <@all> @everyone @all [x](https://evil.example) </b><script> **b** @**all** ```\n" +
		"@**all**\n```"
	e := failure()
	e.Message, e.Reason = evil, "<!here>"
	e.Metadata[event.Summary], e.Metadata["cluster"] = evil, evil
	after := func(key string) func(string) string {
		return func(body string) string { _, rest, _ := strings.Cut(body, key); return rest }
	}
	unescaped := func(body string) string { return escaped.ReplaceAllString(body, "") }
	type view struct {
		extract func(body string) string // returns the part of the body that the chat interprets
		active  []string                 // must not be in it
	}
	views := map[string]view{ // by type or by name
		"slack":            {extract: unchanged, active: []string{"<!", "<@"}},
		"discord":          {extract: unescaped, active: []string{"[x", "<", "*b"}},
		"msteams":          {extract: unescaped, active: []string{"[x", "<", "*b"}},
		"rocket":           {extract: unescaped, active: []string{"[x", "<script", "*b", "@all", "@everyone"}},
		"slack-mattermost": {extract: unescaped, active: []string{"[x", "<", "*b", "@all", "@everyone"}},
		"googlechat": {active: []string{"<script", "<!", "</b><"}, extract: func(body string) string {
			sections, _, _ := strings.Cut(after(`"sections"`)(body), `"fallbackText"`)
			return sections
		}},
		"webex": {active: []string{"<", "[x"}, extract: func(body string) string {
			markdown, _, _ := strings.Cut(body, `"text":`)
			return unescaped(markdown)
		}},
		"telegram": {extract: unchanged, active: []string{"<script", "<!"}},
		"mastodon": {extract: unchanged, active: []string{"@all", "@everyone"}},
		"matrix":   {extract: after("formatted_body"), active: []string{"<script", "<!"}},
		"zulip":    {extract: zulipContentWithoutCode, active: []string{"@**all**", "[x]", "<"}},
		"lark":     {extract: unchanged, active: []string{"lark_md"}},
		"zoom":     {extract: unchanged, active: []string{`"is_markdown_support":true`}},
	}
	for _, name := range slices.Sorted(maps.Keys(chats)) {
		v, ok := views[name]
		if !ok {
			v, ok = views[chats[name].kind]
		}
		if !ok {
			t.Errorf("%s: no view", name)
			continue
		}
		text := v.extract(bodyOf(t, chats[name], e))
		for _, s := range v.active {
			if strings.Contains(text, s) {
				t.Errorf("%s: the chat interprets %q in %s", name, s, text)
			}
		}
	}
}

// escaped matches an escaped character of Markdown in JSON.
var escaped = regexp.MustCompile(`\\\\.`)

// zulipContentWithoutCode returns the content of a Zulip message without code blocks and inline code.
func zulipContentWithoutCode(body string) string {
	form, _ := url.ParseQuery(body)
	content := regexp.MustCompile("(?s)````text\n.*?\n````").ReplaceAllString(form.Get("content"), "")
	return regexp.MustCompile("`[^`]*`").ReplaceAllString(content, "")
}

// bodyOf returns the body of the request for an event.
func bodyOf(t *testing.T, s setup, e event.Event) string {
	t.Helper()
	var body string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(content)
		_, _ = io.WriteString(w, s.response)
	})
	if err := newProvider(t, s.options(server)).Send(testContext(t), e); err != nil {
		t.Error(err)
	}
	return body
}
