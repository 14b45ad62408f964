package view

import (
	"net/url"
	"regexp"
	"strings"
)

// MaxQuery bounds what people may ask, in bytes.
const MaxQuery = 1000

// question is what a person asks about a change.
type question struct {
	text      string   // in lower case
	revisions []string // beginnings of commits or digests
	pull      string   // number of a pull request; empty if it does not ask for one
	site      string   // host and repository of the pull request, in lower case; empty if only the number is known
	targets   []string // IDs of objects whose chains are asked for, besides those that match
}

var (
	// commitPattern matches the beginning of a commit or digest.
	commitPattern = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
	// pullPattern matches the number of a pull request: #7, !7, pr 7.
	pullPattern = regexp.MustCompile(`^(?:(?:pr|mr|pull request|merge request) *[#!]?|[#!])([0-9]{1,9})$`)
	// pullPath matches the path of the page of a pull request at the known git hosts.
	pullPath = regexp.MustCompile(
		`^/(.+?)(?:/-)?/(?:pull|pulls|pull-requests|pullrequest|merge_requests)/([0-9]{1,9})(?:/.*)?$`)
)

// newQuestion parses what a person entered.
func newQuestion(query string) question {
	q := question{text: strings.ToLower(strings.TrimSpace(query))}
	digest := q.text
	if i := strings.LastIndexByte(digest, ':'); i >= 0 && commitPattern.MatchString(digest[i+1:]) {
		digest = digest[i+1:]
	}
	if commitPattern.MatchString(digest) {
		q.revisions = []string{digest}
	}
	if m := pullPattern.FindStringSubmatch(q.text); m != nil {
		q.pull = m[1]
	}
	if u, err := url.Parse(q.text); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
		if m := pullPath.FindStringSubmatch(u.Path); m != nil {
			q.pull, q.site = m[2], u.Host+"/"+m[1]
		}
	}
	return q
}

// IsWords reports whether a query is words, such as an image: not a revision and not a pull request.
func IsWords(query string) bool {
	q := newQuestion(query)
	return q.isWords()
}

// isWords reports whether the question is words.
func (q *question) isWords() bool { return len(q.revisions) == 0 && q.pull == "" }

// isMerged reports whether the commit of a source says that it merged the pull request.
func (q *question) isMerged(source *Item) bool {
	if q.pull == "" || q.site != "" && !strings.Contains(strings.ToLower(source.URL), q.site) {
		return false
	}
	subject := source.Subject
	for {
		i := strings.IndexAny(subject, "#!")
		if i < 0 {
			return false
		}
		rest := subject[i+1:]
		number := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		if number == q.pull {
			return true
		}
		subject = rest
	}
}

// opened reports whether an object opened the pull request.
func (q *question) opened(i *Item) bool {
	if q.pull == "" || i.PullRequest == "" {
		return false
	}
	other := newQuestion(i.PullRequest)
	return other.pull == q.pull && (q.site == "" || q.site == other.site)
}

// has reports whether a revision is one that the question is about.
func (q *question) has(revision string) bool {
	digest := revision
	if i := strings.LastIndexByte(revision, ':'); i >= 0 {
		digest = revision[i+1:]
	} else if !commitPattern.MatchString(revision) {
		return false
	}
	for _, r := range q.revisions {
		if strings.HasPrefix(digest, r) {
			return true
		}
	}
	return false
}
