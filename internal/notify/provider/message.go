package provider

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of a message in characters. Every chat accepts that much.
const (
	maxText   = 3000 // of the text
	maxHint   = 400
	maxField  = 300 // of the value of a field
	maxName   = 80  // of its name
	maxFields = 12
)

// Message is an event for people: what happened, to which object, at which revision, why, and what to do next.
// Each chat renders and escapes it. The texts have no markup, control characters or credentials; all except Text
// are one line.
type Message struct {
	Failed      bool   // the severity of the event is error
	Object      string // kind/name.namespace
	Reason      string
	Summary     string // of the Alert; may be empty
	Text        string // what happened, and why; may have many lines
	Hint        string // what to do next; may be empty
	Revision    string // with a short hash; may be empty
	RevisionURL string // web page of the commit; may be empty
	Fields      []Field
	From        string // the reporting controller
	Time        time.Time
}

// Field is a metadata entry of an event.
type Field struct{ Name, Value string }

// MessageOf returns the message of an event.
func MessageOf(e event.Event) Message {
	o := e.InvolvedObject
	m := Message{
		Failed:  e.Severity == event.Error,
		Object:  excerpt.Chars(singleLine(strings.ToLower(o.Kind)+"/"+o.Name+"."+o.Namespace), 2*maxField),
		Reason:  excerpt.Chars(singleLine(e.Reason), maxField),
		Summary: excerpt.Chars(singleLine(e.Metadata[event.Summary]), 2*maxField),
		From:    excerpt.Chars(singleLine(e.ReportingController), maxField),
		Time:    e.Timestamp.Time,
	}
	m.Text, m.Hint = splitHint(sanitize(e.Message), m.Failed)
	m.Text = shorten(m.Text, maxText)
	m.Revision, m.RevisionURL = revision(e.Metadata)
	m.Fields = fields(e.Metadata, m.RevisionURL != "")
	return m
}

// Title returns the object and the reason in one line.
func (m Message) Title() string {
	if m.Reason == "" {
		return m.Object
	}
	return m.Object + ": " + m.Reason
}

// Mark returns a symbol for the severity, for chats without colours.
func (m Message) Mark() string {
	if m.Failed {
		return "❌"
	}
	return "ℹ️"
}

// Severity returns the severity of the event.
func (m Message) Severity() string {
	if m.Failed {
		return event.Error
	}
	return event.Info
}

// Facts returns the revision and the fields, for chats without links in fields.
func (m Message) Facts() []Field {
	if m.Revision == "" {
		return m.Fields
	}
	return append([]Field{{Name: "Revision", Value: m.Revision}}, m.Fields...)
}

// splitHint separates the hint from the text of a failure. Our faults end with the hint as the last sentence, see
// fault.Fault.Error.
func splitHint(s string, failed bool) (rest, hint string) {
	if !failed {
		return s, ""
	}
	i := strings.LastIndex(s, ". ")
	if i <= 0 || strings.Contains(s[i:], "\n") {
		return s, ""
	}
	hint = s[i+2:]
	first, _ := utf8.DecodeRuneInString(hint)
	if !unicode.IsUpper(first) || utf8.RuneCountInString(hint) > maxHint {
		return s, ""
	}
	return s[:i], hint
}

// namedFields are the metadata keys with a display name. They come first; the others follow sorted by key.
var namedFields = []Field{
	{Name: event.CommitMessage, Value: "Commit"}, {Name: event.CommitAuthor, Value: "Author"},
	{Name: event.OriginRevision, Value: "Origin"}, {Name: event.Note, Value: "Note"},
}

// hiddenKeys are metadata keys that are shown elsewhere in the message or are for machines only.
var hiddenKeys = []string{event.Revision, event.Summary, event.Token, event.CommitStatus, event.ChangeRequest, "digest",
	"checksum"}

// fields returns the metadata for people in a stable order. The origin URL is omitted if the commit is linked.
func fields(metadata map[string]string, hasLink bool) []Field {
	var out []Field
	add := func(name, value string) {
		if value = excerpt.Chars(singleLine(value), maxField); value != "" && len(out) < maxFields {
			out = append(out, Field{excerpt.Chars(singleLine(name), maxName), value})
		}
	}
	for _, f := range namedFields {
		add(f.Value, metadata[f.Name])
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !(hasLink && key == event.OriginURL) && !slices.Contains(hiddenKeys, key) &&
			!slices.ContainsFunc(namedFields, func(f Field) bool { return f.Name == key }) {
			add(key, metadata[key])
		}
	}
	return out
}

// commit matches the commit hash in a git revision: sha1:<commit>, optionally after a reference.
var commit = regexp.MustCompile(`(?:^|@)sha(?:1|256):([0-9a-f]{40}|[0-9a-f]{64})$`)

// shortHash is the number of digits of a shortened hash.
const shortHash = 8

// revision returns the revision with a short hash, and the web page of its commit if the origin is known.
func revision(metadata map[string]string) (short, link string) {
	full := excerpt.Chars(singleLine(metadata[event.Revision]), maxField)
	short = full
	if at := commit.FindStringSubmatchIndex(full); at != nil {
		short = full[:at[2]+shortHash]
	}
	source := full
	if origin := singleLine(metadata[event.OriginRevision]); origin != "" {
		source = origin // an artifact: the commit it was built from
	}
	if at := commit.FindStringSubmatch(source); at != nil {
		link = githost.CommitPage(metadata[event.OriginURL], at[1])
	}
	return short, link
}

// sanitize masks credentials and removes control characters, except line breaks, and characters that change the
// writing direction.
func sanitize(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(event.Mask(s), "\uFFFD"), "\r\n", "\n")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t', r == '\r', unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}

// singleLine sanitizes a text and joins its lines.
func singleLine(s string) string { return joinLines(sanitize(s)) }

func joinLines(s string) string { return strings.Join(strings.Fields(s), " ") }

// shorten truncates a text to n characters. If its lines are short, it keeps complete lines and adds a note with
// the number of omitted lines.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	const noteLength = 24
	head := string([]rune(s)[:max(n-noteLength, 1)])
	cut := strings.LastIndexByte(head, '\n')
	if cut < len(head)/2 { // one long line
		return excerpt.Chars(s, n)
	}
	left := strings.Count(s[cut+1:], "\n") + 1
	return head[:cut] + "\n… and " + strconv.Itoa(left) + " more lines"
}

// fit returns an escaped text of at most n bytes. The length of the escaped text depends on its content, so the
// text is truncated until it fits.
func fit(s string, n int, escape func(string) string) string {
	for size := min(utf8.RuneCountInString(s), max(n, 1)); ; {
		out := escape(shorten(s, size))
		if len(out) <= n || size <= 1 {
			return out
		}
		size = max(min(size-1, size*n/len(out)), 1)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
