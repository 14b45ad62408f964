package provider

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Bounds of a message, in characters. A person reads no more of it, and every chat takes as much.
const (
	maxText   = 3000 // of the text
	maxHint   = 400
	maxField  = 300 // of the value of a field
	maxName   = 80  // of its name
	maxFields = 12
)

// Message is an event for people: what happened, where, at which revision, why, and what to do. Every chat
// renders it in its own form. Its texts are plain, without control characters and credentials; all but Text
// have one line. The chat escapes them.
type Message struct {
	Failed      bool   // the severity of the event is error
	Object      string // kind/name.namespace
	Reason      string
	Summary     string // of the Alert; may be empty
	Text        string // what happened, and why; may have many lines
	Hint        string // what to do next; may be empty
	Revision    string // as people write it; may be empty
	RevisionURL string // of the commit at its host; empty if it is not known
	Fields      []Field
	From        string // the controller that tells it
	Time        time.Time
}

// Field is an entry of the metadata of an event.
type Field struct{ Name, Value string }

// MessageOf returns the message that tells an event.
func MessageOf(e event.Event) Message {
	o := e.InvolvedObject
	m := Message{
		Failed:  e.Severity == event.Error,
		Object:  excerpt.Chars(line(strings.ToLower(o.Kind)+"/"+o.Name+"."+o.Namespace), 2*maxField),
		Reason:  excerpt.Chars(line(e.Reason), maxField),
		Summary: excerpt.Chars(line(e.Metadata[event.Summary]), 2*maxField),
		From:    excerpt.Chars(line(e.ReportingController), maxField),
		Time:    e.Timestamp.Time,
	}
	m.Text, m.Hint = splitHint(text(e.Message), m.Failed)
	m.Text = shorten(m.Text, maxText)
	m.Revision, m.RevisionURL = revision(e.Metadata)
	m.Fields = fields(e.Metadata, m.RevisionURL != "")
	return m
}

// Title is one line that tells the object and how it is.
func (m Message) Title() string {
	if m.Reason == "" {
		return m.Object
	}
	return m.Object + ": " + m.Reason
}

// Mark is a character that tells the severity where colours do not.
func (m Message) Mark() string {
	if m.Failed {
		return "❌"
	}
	return "ℹ️"
}

// Severity is that of the event.
func (m Message) Severity() string {
	if m.Failed {
		return event.Error
	}
	return event.Info
}

// Facts are revision and fields, for chats that cannot give a field a link.
func (m Message) Facts() []Field {
	if m.Revision == "" {
		return m.Fields
	}
	return append([]Field{{"Revision", m.Revision}}, m.Fields...)
}

// splitHint takes what to do next off a text that tells a failure: our faults end in it, as a last sentence
// (fault.Fault.Error).
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

// shown are the entries of the metadata that have a name for people. The others follow by name.
var shown = []Field{
	{event.CommitMessage, "Commit"}, {event.CommitAuthor, "Author"}, {event.OriginRevision, "Origin"},
	{event.Note, "Note"},
}

// hidden are the entries that are told elsewhere in the message, or mean something to machines only.
var hidden = []string{event.Revision, event.Summary, event.Token, event.CommitStatus, event.ChangeRequest, "digest",
	"checksum"}

// fields are the entries of the metadata for people, always in the same order. A link to the commit tells
// where the code is from.
func fields(metadata map[string]string, linked bool) []Field {
	var out []Field
	add := func(name, value string) {
		if value = excerpt.Chars(line(value), maxField); value != "" && len(out) < maxFields {
			out = append(out, Field{excerpt.Chars(line(name), maxName), value})
		}
	}
	for _, f := range shown {
		add(f.Value, metadata[f.Name])
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !(linked && key == event.OriginURL) && !slices.Contains(hidden, key) &&
			!slices.ContainsFunc(shown, func(f Field) bool { return f.Name == key }) {
			add(key, metadata[key])
		}
	}
	return out
}

// commit finds the commit that a revision of git names: sha1:<commit> with or without a reference before it.
var commit = regexp.MustCompile(`(?:^|@)sha(?:1|256):([0-9a-f]{40}|[0-9a-f]{64})$`)

// shownDigits is how many digits of a hash are shown.
const shownDigits = 8

// revision tells the revision with a short hash, and the URL of its commit if the metadata say where the code is from.
func revision(metadata map[string]string) (shown, link string) {
	full := excerpt.Chars(line(metadata[event.Revision]), maxField)
	shown = full
	if at := commit.FindStringSubmatchIndex(full); at != nil {
		shown = full[:at[2]+shownDigits]
	}
	of := full
	if origin := line(metadata[event.OriginRevision]); origin != "" {
		of = origin // of an artifact, the commit that it was made of
	}
	if at := commit.FindStringSubmatch(of); at != nil {
		link = commitURL(metadata[event.OriginURL], at[1])
	}
	return shown, link
}

// scp finds host and path in an address such as git@host:path.
var scp = regexp.MustCompile(`^(?:[\w.-]+@)?([\w.-]+):([^/].*)$`)

// commitURL returns the page of a commit at the host of a repository; empty if none is known. The paths are
// those that the hosts document.
func commitURL(repository, hash string) string {
	if at := scp.FindStringSubmatch(repository); at != nil && !strings.Contains(repository, "://") {
		repository = "ssh://" + at[1] + "/" + at[2]
	}
	u, err := url.Parse(repository)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	path := strings.TrimSuffix(strings.Trim(u.EscapedPath(), "/"), ".git")
	scheme, host := u.Scheme, u.Host
	if scheme != "https" && scheme != "http" {
		scheme, host = "https", u.Hostname() // the port is that of SSH
	}
	page := "/commit/"
	switch {
	case path == "", strings.HasPrefix(path, "scm/"), host == "ssh.dev.azure.com",
		strings.Contains(host, "amazonaws.com"):
		return ""
	case host == "bitbucket.org":
		page = "/commits/"
	case strings.Contains(host, "gitlab"):
		page = "/-/commit/"
	}
	return (&url.URL{Scheme: scheme, Host: host}).String() + "/" + path + page + hash
}

// text leaves what a person reads: no credential, no control character but ends of lines, nothing that turns
// the direction of writing.
func text(s string) string {
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

// line is text in one line.
func line(s string) string { return oneLine(text(s)) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// shorten returns a text of many lines in at most n characters, whole lines where lines are short, and says
// how many are left out.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	const room = 24 // for the note
	head := string([]rune(s)[:max(n-room, 1)])
	cut := strings.LastIndexByte(head, '\n')
	if cut < len(head)/2 { // one long line
		return excerpt.Chars(s, n)
	}
	left := strings.Count(s[cut+1:], "\n") + 1
	return head[:cut] + "\n… and " + strconv.Itoa(left) + " more lines"
}

// fit returns a text as a chat wants it, in at most n bytes of it: as what escaping adds depends on the text,
// the text is cut until it fits.
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
