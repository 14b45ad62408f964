package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
)

const (
	pageSize      = 1000    // tags that are asked for at once; registries may give less
	maxTags       = 500_000 // of a repository
	maxPages      = 20_000  // of a repository
	maxBody       = 16 << 20
	maxURL        = 8 << 10
	maxETag       = 1 << 10
	maxExpression = 4096
)

// tagName is how the distribution specification writes tags.
var tagName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// Scan is what was found out of a repository.
type Scan struct {
	Pages   []store.Page
	Fetched int // pages that are not as they were
}

// Scan lists the tags, page by page. A page that is as it was is not read again: the registry says so by its
// ETag or, where it knows none, the answer's digest does. What is known of tags stays known. A scan that is
// cut off, such as by the registry's limits, goes on where it was.
func (r *Repository) Scan(ctx context.Context, known *store.Repository, excluded []*regexp.Regexp) (Scan, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	s := &scanner{repository: r, before: map[string]store.Page{}, excluded: excluded, asked: map[string]bool{},
		seen: map[string]bool{}}
	list := make([]string, len(excluded))
	for i, re := range excluded {
		list[i] = re.String()
	}
	if known != nil && slices.Equal(known.Excluded, list) { // else tags were left out that count now
		for _, p := range known.Pages {
			s.before[p.URL] = p
		}
	}
	if !slices.Equal(r.begun.Excluded, list) {
		r.begun = store.Repository{Excluded: list}
	}
	next := fmt.Sprintf("/v2/%s/tags/list?n=%d", r.name.RepositoryStr(), pageSize)
	for _, p := range r.begun.Pages {
		s.take(p)
		next = p.Next
	}
	for next != "" {
		p, err := s.page(ctx, next)
		if err != nil {
			r.goOnLater(s.Pages)
			return Scan{}, err
		}
		s.take(p)
		next = p.Next
	}
	r.begun.Pages = nil
	if known != nil && s.Fetched > 0 {
		s.remember(known)
	}
	return s.Scan, nil
}

// goOnLater keeps the pages of a scan that was cut off. A page that cannot be had twice is no place to go on
// from: links to pages may end.
func (r *Repository) goOnLater(pages []store.Page) {
	if len(pages) == len(r.begun.Pages) {
		pages = nil
	}
	r.begun.Pages = pages
}

// scanner is one scan.
type scanner struct {
	Scan
	repository *Repository
	before     map[string]store.Page // by URL
	excluded   []*regexp.Regexp
	asked      map[string]bool // URLs
	seen       map[string]bool // tags
}

// take adds a page, without the tags that are on one before it: pages shift while they are read.
func (s *scanner) take(p store.Page) {
	p.Tags = slices.Clone(p.Tags)
	p.Tags = slices.DeleteFunc(p.Tags, func(t policy.Tag) bool {
		if s.seen[t.Name] {
			return true
		}
		s.seen[t.Name] = true
		return false
	})
	s.asked[p.URL] = true
	if before, ok := s.before[p.URL]; !ok || before.Sum != p.Sum {
		s.Fetched++
	}
	s.Pages = append(s.Pages, p)
}

// page asks for one page.
func (s *scanner) page(ctx context.Context, at string) (store.Page, error) {
	where := s.repository.name.Name()
	switch {
	case s.asked[at]:
		return store.Page{}, unbounded("the list of tags of '%s' leads in a circle", where)
	case len(s.Pages) >= maxPages || len(s.seen) > maxTags:
		return store.Page{}, unbounded("'%s' has more than %d tags, or %d pages of them", where, maxTags, maxPages)
	}
	before, known := s.before[at]
	etag := before.ETag
	if full(before) {
		etag = ""
	}
	body, answer, err := s.repository.get(ctx, at, etag) //nolint:bodyclose // get has read and closed it
	if err != nil {
		return store.Page{}, err
	}
	if answer.StatusCode == http.StatusNotModified {
		if !known {
			return store.Page{}, unbounded("'%s' says that its tags are as before, which were not asked for", where)
		}
		return before, nil
	}
	p := store.Page{URL: at, Sum: sumOf(body, answer.Header.Get("Link"))}
	if etag = answer.Header.Get("ETag"); len(etag) <= maxETag {
		p.ETag = etag
	}
	if known && before.Sum == p.Sum {
		before.ETag = p.ETag
		return before, nil
	}
	if p.Next, err = nextPage(answer.Request.URL, at, answer.Header); err != nil {
		return store.Page{}, fault.New(imagev1.ReadOperationFailedReason, "cannot list the tags of '%s'", where).
			Because(err)
	}
	if p.Tags, err = parseTags(body); err != nil {
		return store.Page{}, fault.New(imagev1.ReadOperationFailedReason, "cannot list the tags of '%s'", where).
			Because(err)
	}
	p.Listed = len(p.Tags)
	if p.Next != "" && !slices.ContainsFunc(p.Tags, func(t policy.Tag) bool { return !s.seen[t.Name] }) {
		return store.Page{}, unbounded("the list of tags of '%s' goes on without any that is new", where)
	}
	p.Tags = slices.DeleteFunc(p.Tags, func(t policy.Tag) bool { return s.excludes(t.Name) })
	return p, nil
}

// full tells whether another page may follow the last one though its own tags stay as they are: where
// registries make the ETag of them alone, it would never be found. Pages are of round numbers.
func full(p store.Page) bool { return p.Next == "" && p.Listed > 0 && p.Listed%10 == 0 }

func (s *scanner) excludes(tag string) bool {
	return slices.ContainsFunc(s.excluded, func(re *regexp.Regexp) bool { return re.MatchString(tag) })
}

// remember takes over what is known of tags whose page is another.
func (s *scanner) remember(known *store.Repository) {
	byName := map[string]policy.Tag{}
	for t := range known.Tags() {
		if t.Known() {
			byName[t.Name] = *t
		}
	}
	for _, p := range s.Pages {
		for i, t := range p.Tags {
			if !t.Known() {
				if before, ok := byName[t.Name]; ok {
					p.Tags[i] = before
				}
			}
		}
	}
}

// get asks for a page, unless it is the one with the ETag.
func (r *Repository) get(ctx context.Context, at, etag string) ([]byte, *http.Response, error) {
	client, err := r.login(ctx)
	if err != nil {
		return nil, nil, err
	}
	registry := r.name.Registry
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, registry.Scheme()+"://"+
		registry.RegistryStr()+at, nil)
	if err != nil {
		return nil, nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	request.Header.Set("Accept", "application/json")
	if etag != "" {
		request.Header.Set("If-None-Match", etag)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	defer answer.Body.Close() // only read
	if err := transport.CheckError(answer, http.StatusOK, http.StatusNotModified); err != nil {
		failure := r.failed(err, "cannot list the tags of '%s'", r.name.Name())
		if f := fault.As(failure); f != nil {
			f.RetryAfter = max(f.RetryAfter, egress.RetryAfter(answer, time.Now()))
		}
		return nil, nil, failure
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errors.New("the registry's answer is too long")
	}
	if err != nil {
		return nil, nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	return body, answer, nil
}

// parseTags reads a page of the list. Tags that the specification does not allow are left out: nothing could
// be pulled by them.
func parseTags(body []byte) ([]policy.Tag, error) {
	var list struct {
		Tags []string `json:"tags"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, errors.New("the registry's answer is not the JSON of a list of tags")
	}
	tags := make([]policy.Tag, 0, len(list.Tags))
	for _, t := range list.Tags {
		if tagName.MatchString(t) {
			tags = append(tags, policy.Tag{Name: t})
		}
	}
	return tags, nil
}

// nextPage returns the path and query of the next page (RFC 8288); empty on the last. It must be of the same
// list; the host of a link is what a registry behind a proxy takes for its own, and does not count.
func nextPage(from *url.URL, at string, header http.Header) (string, error) {
	for _, link := range links(header.Values("Link")) {
		if !link.next {
			continue
		}
		u, err := from.Parse(link.target)
		if err != nil || len(link.target) > maxURL {
			return "", errors.New("the registry's link to the next page is no URL")
		}
		path, _, _ := strings.Cut(at, "?")
		if u.EscapedPath() != path {
			return "", errors.New("the registry's link to the next page leads to something else")
		}
		u.Scheme, u.Host, u.User, u.Fragment = "", "", nil, ""
		return u.String(), nil
	}
	return "", nil
}

type link struct {
	target string
	next   bool
}

// links reads Link headers. What cannot be read is passed over.
func links(headers []string) []link {
	var found []link
	for _, rest := range headers {
		for {
			_, after, ok := strings.Cut(rest, "<")
			if !ok {
				break
			}
			target, after, ok := strings.Cut(after, ">")
			if !ok {
				break
			}
			parameters, _, _ := strings.Cut(after, ",")
			found = append(found, link{strings.TrimSpace(target), isNext(parameters)})
			rest = after
		}
	}
	return found
}

func isNext(parameters string) bool {
	for parameter := range strings.SplitSeq(parameters, ";") {
		key, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "rel") {
			continue
		}
		relations := strings.Fields(strings.Trim(strings.TrimSpace(value), `"`))
		return slices.ContainsFunc(relations, func(r string) bool { return strings.EqualFold(r, "next") })
	}
	return false
}

// sumOf tells answers apart.
func sumOf(body []byte, link string) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, link+"\n") // a hash takes everything
	_, _ = sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil))
}

func unbounded(format string, args ...any) error {
	return fault.New(imagev1.ReadOperationFailedReason, format, args...).
		WithHint("What was found before counts on. Check the registry")
}
