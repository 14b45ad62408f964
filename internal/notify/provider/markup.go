package provider

import (
	"html"
	"regexp"
	"strings"
)

// markup is the syntax of a chat whose messages are one text.
type markup struct {
	escape func(string) string // escapes text of one line
	block  func(string) string // escapes text of many lines
	bold   func(escaped string) string
	link   func(escaped, to string) string
	end    string // line break
}

// render returns a message of at most n bytes. The text is truncated first; fields that do not fit are omitted.
func (k markup) render(m Message, n int) string {
	var parts []string
	head := m.Mark() + " " + k.bold(fit(m.Title(), n/8, k.escape))
	if m.Summary != "" {
		head += k.end + k.bold(fit(m.Summary, n/8, k.escape))
	}
	var tail string
	if m.Hint != "" {
		tail = k.end + k.bold("What to do:") + " " + fit(m.Hint, n/8, k.escape)
	}
	if m.Revision != "" {
		value := k.escape(m.Revision)
		if m.RevisionURL != "" {
			value = k.link(value, m.RevisionURL)
		}
		parts = append(parts, k.bold("Revision:")+" "+value)
	}
	for _, f := range m.Fields {
		parts = append(parts, k.bold(k.escape(f.Name)+":")+" "+k.escape(f.Value))
	}
	room := n - len(head) - len(tail) - 2*len(k.end)
	reserved := 0
	for _, p := range parts {
		reserved = min(reserved+len(p)+len(k.end), room/3)
	}
	out := head
	if m.Text != "" {
		out += k.end + fit(m.Text, max(room-reserved, 1), k.block)
	}
	out += tail
	for _, p := range parts {
		if len(out)+len(k.end)+len(p) <= n {
			out += k.end + p
		}
	}
	return out
}

// plain is text without markup.
var plain = markup{escape: unchanged, block: unchanged, bold: unchanged,
	link: func(label, to string) string { return label + " " + to }, end: "\n"}

func unchanged(s string) string { return s }

func boldHTML(escaped string) string { return "<b>" + escaped + "</b>" }

func linkHTML(escaped, to string) string {
	return `<a href="` + html.EscapeString(to) + `">` + escaped + "</a>"
}

// linesHTML escapes a text and keeps its line breaks.
func linesHTML(s string) string { return strings.ReplaceAll(html.EscapeString(s), "\n", "<br>") }

// bareURL matches URLs that chats turn into links: escape characters would become part of the link.
var bareURL = regexp.MustCompile(`https?://[\w./:?=&%#+,;~-]+`)

var markdownEscaper = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "~", `\~`, "|", `\|`, "#", `\#`,
	"[", `\[`, "]", `\]`,
	"(", `\(`, ")", `\)`, "!", `\!`, "<", `\<`, ">", `\>`, "- ", `\- `, "+ ", `\+ `)

// escapeMarkdown escapes links, mentions and styles of Markdown.
func escapeMarkdown(s string) string {
	var out strings.Builder
	from := 0
	for _, at := range bareURL.FindAllStringIndex(s, -1) {
		out.WriteString(markdownEscaper.Replace(s[from:at[0]]))
		out.WriteString(s[at[0]:at[1]])
		from = at[1]
	}
	out.WriteString(markdownEscaper.Replace(s[from:]))
	return out.String()
}

func boldMarkdown(escaped string) string { return "**" + escaped + "**" }

func linkMarkdown(escaped, to string) string {
	return "[" + escaped + "](" + strings.NewReplacer("(", "%28", ")", "%29", " ", "%20").Replace(to) + ")"
}

// mention matches an @ that can be a mention, not the @ of an e-mail address or a revision.
var mention = regexp.MustCompile(`(^|[^\w.])@`)

// breakMentions inserts a zero-width space after each @ that could mention someone.
func breakMentions(s string) string { return mention.ReplaceAllString(s, "${1}@\u200b") }
