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

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// TestProvidersThatCannotWork are told at once, as faults that only a change helps.
func TestProvidersThatCannotWork(t *testing.T) {
	const host = "https://host.example"
	with := func(c chat, change func(*Options)) Options { o := c.options(host); change(&o); return o }
	for name, c := range map[string]struct {
		o      Options
		reason string
		say    string
	}{
		"unknown type":   {Options{Type: "pigeon"}, ValidationFailed, "pigeon"},
		"no address":     {Options{Type: "slack"}, ValidationFailed, "no address"},
		"not an address": {Options{Type: "slack", Address: "wEbHooKsEcReT"}, ValidationFailed, "no URL"},
		"another scheme": {Options{Type: "slack", Address: "file:///etc/wEbHooKsEcReT"}, ValidationFailed,
			"no URL"},
		"a broken address": {Options{Type: "slack", Address: "https://host/%zzwEbHooKsEcReT"}, ValidationFailed,
			"no URL"},
		"slack, no token": {with(chats["slack-api"], func(o *Options) { delete(o.Secret, "token") }), TokenNotFound,
			"no token"},
		"slack, no channel": {with(chats["slack-api"], func(o *Options) { o.Channel = "" }), ValidationFailed,
			"spec.channel"},
		"webex, no token": {with(chats["webex"], func(o *Options) { delete(o.Secret, "token") }), TokenNotFound,
			"no token"},
		"webex, no channel": {with(chats["webex"], func(o *Options) { o.Channel = "" }), ValidationFailed,
			"spec.channel"},
		"telegram, no token": {with(chats["telegram"],
			func(o *Options) { o.Secret["token"] = []byte("/../t0kenSecret") }), ValidationFailed, "BotFather"},
		"telegram, no chat": {with(chats["telegram"], func(o *Options) { o.Channel = "" }), ValidationFailed,
			"spec.channel"},
		"telegram, bad topic": {with(chats["telegram"], func(o *Options) { o.Channel = "-1:x" }), ValidationFailed,
			"spec.channel"},
		"matrix, no token": {with(chats["matrix"], func(o *Options) { delete(o.Secret, "token") }), TokenNotFound,
			"no token"},
		"matrix, an alias": {with(chats["matrix"], func(o *Options) { o.Channel = "#ops:host" }), ValidationFailed,
			"spec.channel"},
		"zulip, no login": {with(chats["zulip"], func(o *Options) { delete(o.Secret, "password") }), TokenNotFound,
			"no login"},
		"zulip, no channel": {with(chats["zulip"], func(o *Options) { o.Channel = "" }), ValidationFailed,
			"spec.channel"},
		"zoom, no token": {with(chats["zoom"], func(o *Options) { delete(o.Secret, "token") }), TokenNotFound,
			"no token"},
		"token of two lines": {with(chats["webex"],
			func(o *Options) { o.Secret["token"] = []byte("t0kenSecret\r\nX-Evil: 1") }), ValidationFailed,
			"line break"},
		"login of two lines": {with(chats["zulip"],
			func(o *Options) { o.Username = "a"; o.Secret["username"] = []byte("a\nX-Evil: 1") }), ValidationFailed,
			"line break"},
		"header of two lines": {with(chats["discord"],
			func(o *Options) { o.Headers = http.Header{"X-A": {"t0kenSecret\r\nX-Evil: 1"}} }), ValidationFailed,
			"line break"},
		"header with a colon": {with(chats["discord"], func(o *Options) { o.Headers = http.Header{"X:A": {"1"}} }),
			ValidationFailed, "not valid"},
	} {
		_, err := New(c.o)
		f := fault.As(err)
		if f == nil || !f.Terminal || f.Reason != c.reason || !strings.Contains(f.Error(), c.say) {
			t.Errorf("%s: want a terminal fault %s that says %q, got %v", name, c.reason, c.say, err)
			continue
		}
		mustHoldNoSecret(t, err)
	}
}

func TestTheSecretGoesBeforeTheSpec(t *testing.T) {
	var path, body string
	host := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(content)
	})
	p := provider(t, Options{Type: "slack", Address: "https://host.invalid/other", Username: "spec",
		Secret: map[string][]byte{"address": []byte(host + "/secret\n"), "username": []byte("secret\n")}})
	if err := p.Send(within(t), success()); err != nil {
		t.Fatal(err)
	}
	if path != "/secret" || !strings.Contains(body, `"username":"secret"`) {
		t.Errorf("it went to %s as %s", path, body)
	}
}

// TestATryAgainIsTheSameMessage: a room of Matrix has an event once, however often it is sent; other events
// are other messages.
func TestATryAgainIsTheSameMessage(t *testing.T) {
	var paths []string
	host := serve(t, func(_ http.ResponseWriter, r *http.Request) { paths = append(paths, r.URL.Path) })
	other := failure()
	other.Metadata[event.Token] = "another change of the same revision"
	for _, e := range []event.Event{failure(), failure(), other} {
		if err := provider(t, chats["matrix"].options(host)).Send(within(t), e); err != nil {
			t.Fatal(err)
		}
	}
	if paths[0] != paths[1] || paths[1] == paths[2] {
		t.Errorf("the transactions are %q", paths)
	}
}

// TestMarkupOfEventsStaysText sends what chats act on, in every text of an event.
func TestMarkupOfEventsStaysText(t *testing.T) {
	const evil = "<!channel> <@all> @everyone @all [x](https://evil.example) </b><script> **b** @**all** ```\n" +
		"@**all**\n```"
	e := failure()
	e.Message, e.Reason = evil, "<!here>"
	e.Metadata[event.Summary], e.Metadata["cluster"] = evil, evil
	after := func(key string) func(string) string {
		return func(body string) string { _, rest, _ := strings.Cut(body, key); return rest }
	}
	unescaped := func(body string) string { return escaped.ReplaceAllString(body, "") }
	type eye struct {
		look   func(body string) string // leaves what the chat acts on
		active []string                 // that must not be there
	}
	eyes := map[string]eye{ // by type, or by name
		"slack":            {same, []string{"<!", "<@"}},
		"discord":          {unescaped, []string{"[x", "<", "*b"}},
		"msteams":          {unescaped, []string{"[x", "<", "*b"}},
		"rocket":           {unescaped, []string{"[x", "<script", "*b", "@all", "@everyone"}},
		"slack-mattermost": {unescaped, []string{"[x", "<", "*b", "@all", "@everyone"}},
		"googlechat":       {after(`"sections"`), []string{"<script", "<!", "</b><"}},
		"webex": {func(body string) string { m, _, _ := strings.Cut(body, `"text":`); return unescaped(m) },
			[]string{"<", "[x"}},
		"telegram": {same, []string{"<script", "<!"}},
		"matrix":   {after("formatted_body"), []string{"<script", "<!"}},
		"zulip":    {formContent, []string{"@**all**", "[x]", "<"}},
		"lark":     {same, []string{"lark_md"}},
		"zoom":     {same, []string{`"is_markdown_support":true`}},
	}
	for _, name := range slices.Sorted(maps.Keys(chats)) {
		chat, ok := eyes[name]
		if !ok {
			chat = eyes[chats[name].kind]
		}
		body := bodyOf(t, chats[name], e)
		for _, s := range chat.active {
			if seen := chat.look(body); strings.Contains(seen, s) {
				t.Errorf("%s: the chat sees %q in %s", name, s, seen)
			}
		}
	}
}

// escaped finds a character that stands for itself in Markdown, in JSON.
var escaped = regexp.MustCompile(`\\\\.`)

// formContent is the message of Zulip, without its blocks of code and its pieces of code.
func formContent(body string) string {
	form, _ := url.ParseQuery(body)
	content := regexp.MustCompile("(?s)````text\n.*?\n````").ReplaceAllString(form.Get("content"), "")
	return regexp.MustCompile("`[^`]*`").ReplaceAllString(content, "")
}

// bodyOf returns what a chat is sent.
func bodyOf(t *testing.T, c chat, e event.Event) string {
	t.Helper()
	var body string
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = string(content)
		_, _ = io.WriteString(w, c.answer)
	})
	if err := provider(t, c.options(host)).Send(within(t), e); err != nil {
		t.Error(err)
	}
	return body
}
