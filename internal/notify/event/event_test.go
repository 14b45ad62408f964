package event

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"
)

const posted = `{
	"involvedObject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "webapp",
		"namespace": "apps"},
	"severity": "error", "reason": "ValidationFailed",
	"message": "service/apps/webapp: spec.type: Unsupported value: Ingress",
	"metadata": {
		"kustomize.toolkit.fluxcd.io/revision": "main@sha1:abc", "event.toolkit.fluxcd.io/env": "prod",
		"example.com/theirs": "x", "plain": "y"
	},
	"reportingController": "kustomize-controller", "timestamp": "2026-10-28T07:26:19Z", "later": {"field": true}
}`

func TestParse(t *testing.T) {
	e, err := Parse([]byte(posted))
	if err != nil {
		t.Fatal(err)
	}
	if e.InvolvedObject.Name != "webapp" || e.Severity != Error || e.Reason != "ValidationFailed" ||
		e.Timestamp.Unix() == 0 || e.Group() != "kustomize.toolkit.fluxcd.io" {
		t.Errorf("unexpected event %+v", e)
	}
	if want := map[string]string{Revision: "main@sha1:abc", AnnotationGroup + "/env": "prod",
		"plain": "y"}; !maps.Equal(e.Metadata, want) {
		t.Errorf("metadata is %v, want %v", e.Metadata, want)
	}
}

func TestParseErrors(t *testing.T) {
	object := `"involvedObject":{"kind":"K","name":"n","namespace":"s"}`
	many := `{` + object + `,"metadata":{"0":""`
	for i := range MaxMetadata {
		many += `,"k` + strings.Repeat("x", i) + `":""`
	}
	for name, c := range map[string]struct{ body, want string }{
		"empty":         {body: ``, want: "not a JSON event"},
		"malformed":     {body: `{"severity": "info"`, want: "not a JSON event"},
		"wrong type":    {body: `{"involvedObject":"x"}`, want: "not a JSON event"},
		"two documents": {body: `{` + object + `}{}`, want: "not a JSON event"},
		"no object":     {body: `{}`, want: "involvedObject.kind is not set"},
		"no namespace": {body: `{"involvedObject":{"kind":"K","name":"n"}}`,
			want: "involvedObject.namespace is not set"},
		"unknown severity": {body: `{` + object + `,"severity":"fatal"}`,
			want: `severity is "fatal": must be info or error`},
		"line break in a name": {body: `{"involvedObject":{"kind":"K","name":"n\r\nX: y","namespace":"s"}}`,
			want: "involvedObject.name contains a line break"},
		"long reason": {body: `{` + object + `,"reason":"` + strings.Repeat("x", 400) + `"}`,
			want: "reason has more than"},
		"line break in a metadata key": {body: `{` + object + `,"metadata":{"a\nb":"c"}}`,
			want: "a metadata key contains a line break"},
		"too many metadata entries": {body: many + `}}`, want: "metadata has more than"},
		"too large": {body: `{` + object + `,"message":"` + strings.Repeat("x", MaxSize) + `"}`,
			want: "the event has more than"},
	} {
		if _, err := Parse([]byte(c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

func TestCleanTruncatesAtCharacters(t *testing.T) {
	e := Event{Message: strings.Repeat("é", MaxMessage),
		Metadata: map[string]string{"k": strings.Repeat("€", maxValue)}}.Clean()
	for text, limit := range map[string]int{e.Message: MaxMessage, e.Metadata["k"]: maxValue} {
		if len(text) > limit || len(text) < limit-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "…") {
			t.Errorf("got %d bytes, valid UTF-8: %v", len(text), utf8.ValidString(text))
		}
	}
	if e := (Event{Message: "red \x1b[31m and\x00 line\none\tmore"}).
		Clean(); e.Message != "red [31m and line\none\tmore" {
		t.Errorf("control characters are not removed: %q", e.Message)
	}
}

// secrets returns texts with credentials and what Mask returns for them, and texts that Mask does not change.
func secrets() map[string]string {
	github, slack := "ghp_"+strings.Repeat("a1B2", 9), "xoxb-"+strings.Repeat("1234567890-", 3)+"abcdef"
	all := map[string]string{
		"https://" + github + "@github.com/a":        "https://***@github.com/a",
		"the token is " + github + ".":               "the token is ***.",
		"sent " + slack:                              "sent ***",
		"Authorization: Bearer abc.def.ghijkl":       "Authorization: Bearer ***",
		"password=hunter2 and more":                  "password=*** and more",
		`{"password":"hunter2!","user":"me"}`:        `{"password":"***","user":"me"}`,
		"clientSecret: abc123def":                    "clientSecret: ***",
		"AGE-SECRET-KEY-1QQQQQQQQ":                   "***",
		"eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2lnbmF0dXJl": "***",
		"key AKIA" + strings.Repeat("Z", 16):         "key ***",
		"-----BEGIN PRIVATE KEY-----\ncut off":       "***",

		"cannot clone https://me:hunter22@git.example.com/a.git": "cannot clone https://***@git.example.com/a.git",
		"GET https://x.io/?a=b&access_token=abcdef&c=d":          "GET https://x.io/?a=b&access_token=***&c=d",
		"https://hooks.slack.com/services/T0/B0/abc failed":      "https://hooks.slack.com/*** failed",

		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nnext": "***\nnext",
	}
	for _, unchanged := range []string{
		"Secret 'apps/login' has no key token: create it",
		"Applied revision: main@sha1:0123456789abcdef0123456789ab",
		"Basic auth failed for user@example.com",
		"Secret/apps/password configured, ServiceAccount/x-token",
	} {
		all[unchanged] = unchanged
	}
	return all
}

func TestMask(t *testing.T) {
	for text, want := range secrets() {
		if got := Mask(text); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
		if again := Mask(want); again != want {
			t.Errorf("masked text %q is masked again: %q", want, again)
		}
	}
	e := Event{Metadata: map[string]string{"password": "hunter22", Token: "0123456789abcdef",
		"link": "https://a:b@c.d"}}.Clean()
	if want := map[string]string{"password": "***", Token: "0123456789abcdef",
		"link": "https://***@c.d"}; !maps.Equal(e.Metadata, want) {
		t.Errorf("metadata is %v, want %v", e.Metadata, want)
	}
}

// FuzzLiterals checks that each match of a pattern contains one of its literals.
func FuzzLiterals(f *testing.F) {
	for text := range secrets() {
		f.Add(text)
		f.Add(strings.ToUpper(text))
		f.Add(strings.ToLower(text))
		f.Add(strings.NewReplacer("s", "ſ", "k", "\u212a").Replace(text))
	}
	for _, prefix := range []string{"gho_", "github_pat_", "glpat-", "gldt-", "glrt-", "dckr_pat_", "xapp-", "hvs.",
		"sk-", "npm_", "pypi-", "AIza", "ya29."} {
		f.Add(prefix + strings.Repeat("x", 16))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range append(patterns[:len(patterns):len(patterns)], named) {
			match := p.FindString(text)
			if match != "" && p.replace(match, toUpper(match), func([]string) string { return "" }) == match {
				t.Errorf("%q matches %s but contains none of its literals", match, p)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(posted))
	f.Add([]byte(`{"involvedObject":{"kind":"K","name":"n","namespace":"s"},"message":"https://a:b@c",` +
		`"metadata":{"a/":"","x":"y"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := Parse(body)
		if err != nil {
			return
		}
		if len(e.Message) > MaxMessage || !utf8.ValidString(e.Message) || len(e.Metadata) > MaxMetadata ||
			e.InvolvedObject.Name == "" {
			t.Fatalf("out of bounds: %+v", e)
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(again); err != nil && len(again) <= MaxSize || err == nil && back.Reason != e.Reason {
			t.Fatalf("an accepted event is rejected when parsed again: %v", err)
		}
	})
}
