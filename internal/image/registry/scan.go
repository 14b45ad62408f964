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
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	pageSize = 1000     // requested tags per page; registries may return fewer
	maxTags  = 500_000  // of a repository
	maxPages = 20_000   // of a repository
	maxBody  = 16 << 20 // bytes of a response
	maxURL   = 8 << 10
	maxETag  = 1 << 10
)

// Scan is the tags of a repository.
type Scan struct {
	Pages   []store.Page
	Fetched int // number of pages that changed
}

// Scan lists the tags, page by page. Pages that did not change are recognized by their ETag or, if the
// registry sends none, by the digest of the response. Known details of tags are kept. A scan that fails, for
// example due to rate limits, is resumed by the next call.
func (r *Repository) Scan(ctx context.Context, known *store.Repository, excluded []*regexp.Regexp) (Scan, error) {
	r.scanning.Lock()
	defer r.scanning.Unlock()
	s := &scanner{repository: r, before: map[string]store.Page{}, excluded: excluded, requested: map[string]bool{},
		seen: map[string]bool{}}
	list := make([]string, len(excluded))
	for i, re := range excluded {
		list[i] = re.String()
	}
	if known != nil && slices.Equal(known.Excluded, list) { // other exclusions may have dropped tags
		for _, p := range known.Pages {
			s.before[p.URL] = p
		}
	}
	if !slices.Equal(r.partial.Excluded, list) {
		r.partial = store.Repository{Excluded: list}
	}
	next := fmt.Sprintf("/v2/%s/tags/list?n=%d", r.name.RepositoryStr(), pageSize)
	for _, p := range r.partial.Pages {
		s.add(p)
		next = p.Next
	}
	for next != "" {
		p, err := s.page(ctx, next)
		if err != nil {
			r.saveForResume(ctx, s.Pages)
			return Scan{}, err
		}
		s.add(p)
		next = p.Next
	}
	r.partial.Pages = nil
	if known != nil && s.Fetched > 0 {
		s.copyDetails(known)
	}
	return s.Scan, nil
}

// saveForResume saves the pages of a failed scan. If the scan made no progress since it was resumed, the next
// one starts over, as links to pages may expire. It also starts over if the namespace has too many such pages.
func (r *Repository) saveForResume(ctx context.Context, pages []store.Page) {
	if len(pages) == len(r.partial.Pages) {
		pages = nil
	}
	pages = slices.Clone(pages)
	if len(pages) > 0 && !guard.TakeWhile(partials(), guard.OwnerOf(ctx), memoryOf(pages), &pages[0]) {
		pages = nil
	}
	r.partial.Pages = pages
}

// scanner is the state of one scan.
type scanner struct {
	Scan
	repository *Repository
	before     map[string]store.Page // by URL
	excluded   []*regexp.Regexp
	requested  map[string]bool // URLs
	seen       map[string]bool // tags
	memory     int64           // of the pages, in bytes
}

// add adds a page, without tags of earlier pages, as tags may move to another page during the scan.
func (s *scanner) add(p store.Page) {
	p.Tags = slices.Clone(p.Tags)
	p.Tags = slices.DeleteFunc(p.Tags, func(t policy.Tag) bool {
		if s.seen[t.Name] {
			return true
		}
		s.seen[t.Name] = true
		return false
	})
	s.requested[p.URL] = true
	if before, ok := s.before[p.URL]; !ok || before.Sum != p.Sum {
		s.Fetched++
	}
	s.Pages = append(s.Pages, p)
	s.memory += p.Memory()
}

// page requests one page.
func (s *scanner) page(ctx context.Context, at string) (store.Page, error) {
	where := s.repository.name.Name()
	switch {
	case s.requested[at]:
		return store.Page{}, unbounded("the tag list of '%s' links to an earlier page", where)
	case len(s.Pages) >= maxPages || len(s.seen) > maxTags:
		return store.Page{}, unbounded("'%s' has more than %d tags or %d pages", where, maxTags, maxPages)
	case s.memory > store.MaxMemory():
		return store.Page{}, store.TooLarge(where)
	}
	before, known := s.before[at]
	etag := before.ETag
	if isRound(before) {
		etag = ""
	}
	body, response, err := s.repository.get(ctx, at, etag) //nolint:bodyclose // get closes it
	if err != nil {
		return store.Page{}, err
	}
	if response.StatusCode == http.StatusNotModified {
		if !known {
			return store.Page{}, unbounded("the registry returned 304 Not Modified for '%s' to an "+
				"unconditional request", where)
		}
		return before, nil
	}
	p := store.Page{URL: at, Sum: sumOf(body, response.Header.Get("Link"))}
	if etag = response.Header.Get("ETag"); len(etag) <= maxETag {
		p.ETag = etag
	}
	if known && before.Sum == p.Sum {
		before.ETag = p.ETag
		return before, nil
	}
	if p.Next, err = nextPage(response.Request.URL, at, response.Header); err != nil {
		return store.Page{}, fault.New(imagev1.ReadOperationFailedReason, "cannot list the tags of '%s'", where).
			Because(err)
	}
	if p.Tags, err = parseTags(ctx, body); guard.IsMemory(err) {
		return store.Page{}, err
	} else if err != nil {
		return store.Page{}, fault.New(imagev1.ReadOperationFailedReason, "cannot list the tags of '%s'", where).
			Because(err)
	}
	p.Listed = len(p.Tags)
	if p.Next != "" && !slices.ContainsFunc(p.Tags, func(t policy.Tag) bool { return !s.seen[t.Name] }) {
		return store.Page{}, unbounded("the tag list of '%s' has a page without new tags", where)
	}
	p.Tags = slices.DeleteFunc(p.Tags, func(t policy.Tag) bool { return s.excludes(t.Name) })
	return p, nil
}

// isRound reports whether the last page is possibly full, so that another page may follow although its tags
// do not change. Some registries compute the ETag only from the tags; a conditional request would never see
// the new page.
func isRound(p store.Page) bool { return p.Next == "" && p.Listed > 0 && p.Listed%10 == 0 }

func (s *scanner) excludes(tag string) bool {
	return slices.ContainsFunc(s.excluded, func(re *regexp.Regexp) bool { return re.MatchString(tag) })
}

// copyDetails copies known details to the tags of changed pages.
func (s *scanner) copyDetails(known *store.Repository) {
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

// get requests a page, conditionally if there is an ETag.
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
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	defer response.Body.Close() // read only
	if err := transport.CheckError(response, http.StatusOK, http.StatusNotModified); err != nil {
		failure := r.failed(err, "cannot list the tags of '%s'", r.name.Name())
		if f := fault.As(failure); f != nil {
			f.RetryAfter = max(f.RetryAfter, egress.RetryAfter(response, time.Now()))
		}
		return nil, nil, failure
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errors.New("the response of the registry is too large")
	}
	if err != nil {
		return nil, nil, r.failed(err, "cannot list the tags of '%s'", r.name.Name())
	}
	return body, response, nil
}

// parseTags parses a page of the list. It drops tags that the specification does not allow, as they cannot be pulled.
func parseTags(ctx context.Context, body []byte) ([]policy.Tag, error) {
	values := valuesIn(body)
	if values > 2*maxTags {
		return nil, fmt.Errorf("a page of the list has more than %d tags", maxTags)
	}
	lease, err := acquire(ctx, "reading a list of tags", textCopies*int64(len(body))+tagBytes*values)
	if err != nil {
		return nil, err
	}
	defer lease.Release()
	var list struct {
		Tags []string `json:"tags"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, errors.New("the response of the registry is not a JSON list of tags")
	}
	tags := make([]policy.Tag, 0, len(list.Tags))
	for _, t := range list.Tags {
		if oci.IsTag(t) {
			tags = append(tags, policy.Tag{Name: t})
		}
	}
	return tags, nil
}

// nextPage returns the path and query of the next page (RFC 8288); empty if there is none. It must be a page
// of the same list. The host of the link is ignored, as a registry behind a proxy may not know its public
// name.
func nextPage(from *url.URL, at string, header http.Header) (string, error) {
	for _, link := range links(header.Values("Link")) {
		if !link.next {
			continue
		}
		u, err := from.Parse(link.target)
		if err != nil || len(link.target) > maxURL {
			return "", errors.New("the registry's link to the next page is not a URL")
		}
		path, _, _ := strings.Cut(at, "?")
		if u.EscapedPath() != path {
			return "", errors.New("the registry's link to the next page is not a tag list of this repository")
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

// links parses Link headers. It skips invalid links.
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

// sumOf returns a digest of a response.
func sumOf(body []byte, link string) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, link+"\n") // a hash never fails
	_, _ = sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil))
}

func unbounded(format string, args ...any) error {
	return fault.New(imagev1.ReadOperationFailedReason, format, args...).
		WithHint("Tags that were found before stay available. Check the registry")
}
