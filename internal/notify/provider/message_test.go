package provider

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

func TestMessageOf(t *testing.T) {
	m := MessageOf(failure())
	for name, c := range map[string]struct{ got, want string }{
		"object":   {got: m.Object, want: "kustomization/shop.prod"},
		"title":    {got: m.Title(), want: "kustomization/shop.prod: HealthCheckFailed"},
		"severity": {got: m.Severity(), want: event.Error},
		"summary":  {got: m.Summary, want: "production, eu-west-1"},
		"hint":     {got: m.Hint, want: "Check that the image exists"},
		"revision": {got: m.Revision, want: "main@sha1:01234567"},
		"link": {got: m.RevisionURL,
			want: "https://github.com/acme/fleet/commit/0123456789abcdef0123456789abcdef01234567"},
		"from": {got: m.From, want: "kustomize-controller"},
	} {
		if c.got != c.want {
			t.Errorf("%s is %q, want %q", name, c.got, c.want)
		}
	}
	if strings.Contains(m.Text, m.Hint) || !strings.HasPrefix(m.Text, "Deployment/prod/shop is not healthy") {
		t.Errorf("unexpected text %q", m.Text)
	}
	var names []string
	for _, f := range m.Fields {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "Commit Author cluster" {
		t.Errorf("unexpected fields %s", got)
	}
}

func TestSplitHint(t *testing.T) {
	for message, c := range map[string]struct{ text, hint string }{
		"pull failed: 401. Renew the token":       {text: "pull failed: 401", hint: "Renew the token"},
		"a. B happened. Check C":                  {text: "a. B happened", hint: "Check C"},
		"image v1. x is missing":                  {text: "image v1. x is missing", hint: ""},
		"one line. And\nanother":                  {text: "one line. And\nanother", hint: ""},
		"no sentence":                             {text: "no sentence", hint: ""},
		". Odd":                                   {text: ". Odd", hint: ""},
		"long. " + "L" + strings.Repeat("o", 500): {text: "long. " + "L" + strings.Repeat("o", 500), hint: ""},
	} {
		if text, hint := splitHint(message, true); text != c.text || hint != c.hint {
			t.Errorf("splitHint(%q) = %q, %q", message, text, hint)
		}
	}
	if _, hint := splitHint("Applied. Nothing else to do", false); hint != "" {
		t.Errorf("an info event has the hint %q", hint)
	}
}

func TestRevisionOfArtifact(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	metadata := map[string]string{event.Revision: "v1@sha256:" + strings.Repeat("a", 64),
		event.OriginURL: "https://github.com/acme/fleet"}
	metadata[event.OriginRevision] = "main@sha1:" + hash
	if short, link := revision(metadata); short != "v1@sha256:aaaaaaaa" || !strings.HasSuffix(link, hash) {
		t.Errorf("artifact of a commit: revision %s, link %s", short, link)
	}
	if short, link := revision(map[string]string{event.Revision: "6.5.0",
		event.OriginURL: "https://github.com/acme/fleet"}); short != "6.5.0" || link != "" {
		t.Errorf("chart: revision %s, link %s", short, link)
	}
}

func TestShorten(t *testing.T) {
	lines := strings.TrimSuffix(strings.Repeat("a line of twenty-odd\n", 500), "\n")
	got := shorten(lines, 1000)
	head, note, _ := strings.Cut(got, "\n… and ")
	if n := strings.Count(head, "\n") + 1; utf8.RuneCountInString(got) > 1000 || note != itoa(500-n)+" more lines" {
		t.Errorf("got %d lines and the note %q", n, note)
	}
	if got := shorten(strings.Repeat("x", 5000), 1000); utf8.RuneCountInString(got) != 1000 ||
		!strings.HasSuffix(got, "…") {
		t.Errorf("one long line: got %d characters", utf8.RuneCountInString(got))
	}
	if got := fit(strings.Repeat("<", 5000), 100, slackEscape); len(got) > 100 || !strings.HasSuffix(got, "…") ||
		strings.Contains(got, "&l…") {
		t.Errorf("text that gets longer by escaping: got %q", got)
	}
}

// FuzzMessage renders any event in every format. The result must be within the bounds and without control
// characters.
func FuzzMessage(f *testing.F) {
	f.Add("Kustomization", "shop", "HealthCheckFailed", failure().Message,
		"main@sha1:0123456789abcdef0123456789abcdef01234567", "https://github.com/a/b", "cluster", "eu")
	f.Add("", "", "", "", "", "", "", "")
	f.Add("K", "n", "R", "a\x00b\u202ec\u2028d\xff. Z", "@sha1:", "git@:x", "k\n", "<@everyone>")
	f.Add("K", "n", "R", strings.Repeat("`<&\n", 3000), "x", "://", "", strings.Repeat("*", 9000))
	f.Fuzz(func(t *testing.T, kind, name, reason, message, revision, origin, key, value string) {
		m := MessageOf(event.Event{
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "ns", Name: name}, Severity: event.Error,
			Reason: reason, Message: message,
			Timestamp: metav1.NewTime(time.Unix(0, 0)), ReportingController: reason,
			Metadata: map[string]string{event.Revision: revision, event.OriginURL: origin, event.Summary: value,
				key: value, event.Note: message},
		})
		lines := []string{m.Object, m.Title(), m.Reason, m.Summary, m.Hint, m.Revision, m.RevisionURL, m.From}
		for _, f := range m.Facts() {
			lines = append(lines, f.Name, f.Value)
		}
		for _, s := range lines {
			isControl := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
			if strings.ContainsFunc(s, isControl) || !utf8.ValidString(s) {
				t.Errorf("invalid characters in %q", s)
			}
		}
		if utf8.RuneCountInString(m.Text) > maxText || len(m.Fields) > maxFields {
			t.Errorf("text of %d characters, %d fields", utf8.RuneCountInString(m.Text), len(m.Fields))
		}
		for n, k := range map[int]markup{telegramText: telegramMarkup, webexText: webexMarkup,
			zulipContent: zulipMarkup, matrixText: matrixMarkup} {
			if out := k.render(m, n); len(out) > n || !utf8.ValidString(out) {
				t.Errorf("got %d bytes, limit %d", len(out), n)
			}
		}
		for _, b := range slackBlocks(m) {
			text, _ := b["text"].(object)
			content, _ := text["text"].(string)
			if fields, _ := b["fields"].([]object); len(content) > slackSection || len(fields) > slackFields {
				t.Errorf("Slack block with %d bytes and %d fields", len(content), len(fields))
			}
		}
		e := discordEmbed(m)
		title, text := e["title"].(string), e["description"].(string)
		if len(title) > discordTitle || len(text) > discordDescription {
			t.Errorf("Discord embed with a title of %d bytes and a text of %d bytes", len(title), len(text))
		}
		adaptiveCard(m)
		connectorCard(m)
		larkCard(m)
		googleSections(m)
	})
}
