package githost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	maxAnswer = 16 << 20 // bytes: a hundred long comments
	maxWords  = 200      // characters of what a host says of an error
	pageSize  = 100
	maxPages  = 20
)

// rest is how all hosts are asked: JSON over HTTP.
type rest struct {
	kind   Kind
	api    url.URL // that paths are below
	query  url.Values
	header http.Header
	login  Login
	client *http.Client
	clock  clock.PassiveClock
}

func newREST(o Options, login Login) *rest {
	r := &rest{kind: o.Repository.Kind, api: o.Repository.Base, header: http.Header{}, login: login, clock: o.Clock,
		client: &http.Client{Transport: o.Transport, CheckRedirect: keepMethod}}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	return r
}

// keepMethod follows redirects, as those of repositories that were renamed, unless a write would become a read.
func keepMethod(next *http.Request, past []*http.Request) error {
	if next.Method != past[0].Method || len(past) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// refusal is an answer of a host that is none of success.
type refusal struct {
	status int
	words  string // of the host; may be empty
}

func (r *refusal) Error() string {
	if r.words == "" {
		return fmt.Sprintf("status %d", r.status)
	}
	return fmt.Sprintf("status %d, %q", r.status, r.words)
}

// refused returns the host's refusal in err's chain, or an empty one.
func refused(err error) refusal {
	var r *refusal
	if errors.As(err, &r) {
		return *r
	}
	return refusal{}
}

// do asks for path, whose parts are not escaped, and reads the answer into out unless that is nil. what says
// for people what it is about.
func (r *rest) do(ctx context.Context, what, method string, path []string, query url.Values, in, out any) error {
	_, err := r.send(ctx, what, method, path, query, in, out)
	return err
}

// page asks for a page of a list; size is the host's name for how long it is. It tells whether there are
// more, by the Link header of RFC 8288.
func (r *rest) page(ctx context.Context, what string, path []string, query url.Values, size string, page int,
	out any) (bool, error) {
	all := url.Values{size: {strconv.Itoa(pageSize)}, "page": {strconv.Itoa(page)}}
	maps.Copy(all, query)
	header, err := r.send(ctx, what, http.MethodGet, path, all, nil, out)
	return strings.Contains(header.Get("Link"), `rel="next"`), err
}

// first walks pages, and returns what matches first, or nil.
func first[T any](page func(n int) (all []T, more bool, err error), match func(T) bool) (*T, error) {
	for n, more := 1, true; more && n <= maxPages; n++ {
		var all []T
		var err error
		if all, more, err = page(n); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, match); i >= 0 {
			return &all[i], nil
		}
	}
	return nil, nil
}

func (r *rest) send(ctx context.Context, what, method string, path []string, query url.Values, in,
	out any) (http.Header, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, failed("%s cannot be written as JSON", what).Because(err).Final()
		}
		body = bytes.NewReader(raw)
	}
	u := r.api.JoinPath(escaped(path)...)
	all := url.Values{}
	maps.Copy(all, r.query)
	maps.Copy(all, query)
	u.RawQuery = all.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, invalid("the address of %s cannot be used", r.api.Host)
	}
	login, err := r.login(ctx)
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	authorize(req, r.kind, login)
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, failed("cannot ask %s for %s", r.api.Host, what).Because(withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, failed("cannot read the answer of %s about %s", r.api.Host, what).Because(err)
	}
	// Azure DevOps says 203 to who has no valid login, with a page to log in at.
	if resp.StatusCode/100 != 2 || resp.StatusCode == http.StatusNonAuthoritativeInfo {
		return nil, r.explain(what, resp, raw, login)
	}
	if out == nil {
		return resp.Header, nil
	}
	// The error is not told, since it may quote the answer.
	if len(raw) > maxAnswer || json.Unmarshal(raw, out) != nil {
		return nil, failed("the answer of %s about %s is not what %s documents", r.api.Host, what, r.kind).
			WithHint("Check the address and the type of the provider, and the login").Final()
	}
	return resp.Header, nil
}

// explain makes a fault of a refusal.
func (r *rest) explain(what string, resp *http.Response, raw []byte, login auth.GitCredentials) error {
	why := &refusal{resp.StatusCode, words(raw, login.Password, login.BearerToken)}
	wait := egress.RetryAfter(resp, r.clock.Now())
	f := failed("%s refused %s", r.api.Host, what).Because(why)
	switch status := resp.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusForbidden && wait > 0:
		return failed("%s takes no more requests for now, so %s must wait", r.api.Host, what).Because(why).After(wait)
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return failed("%s failed at %s", r.api.Host, what).Because(why).After(wait)
	case status == http.StatusUnauthorized, status == http.StatusNonAuthoritativeInfo:
		f.Reason = meta.AuthenticationFailedReason
		f = f.WithHint("The login in the Secret is wrong or has expired")
	case status == http.StatusForbidden:
		f.Reason = meta.AuthenticationFailedReason
		f = f.WithHint("The login in the Secret needs the permission for it")
	case status == http.StatusNotFound:
		f = f.WithHint("Check the address, and that the login may see the repository")
	case status/100 == 3:
		f = f.WithHint("The repository may have moved: correct the address")
	}
	return f.Final()
}

// withoutURL drops the URL that the client puts into its errors.
func withoutURL(err error) error {
	var wrapped *url.Error
	if fault.As(err) == nil && errors.As(err, &wrapped) {
		return wrapped.Err
	}
	if f := fault.As(err); f != nil {
		return f
	}
	return err
}

var anyURL = regexp.MustCompile(`[a-z]+://\S+`)

// words finds what a host says of an error in the fields that hosts have for it, without secrets and URLs.
func words(raw []byte, secrets ...string) string {
	var answer any
	if json.Unmarshal(raw, &answer) != nil {
		return ""
	}
	var found []string
	collect(answer, &found, 0)
	text := line(strings.Join(found, "; "))
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return excerpt.Chars(anyURL.ReplaceAllString(text, "***"), maxWords)
}

// collect gathers the texts of message, error and errors, which are texts, lists, or lists by field.
func collect(v any, found *[]string, depth int) {
	if depth > 4 || len(*found) > 8 {
		return
	}
	switch v := v.(type) {
	case string:
		*found = append(*found, v)
	case []any:
		for _, e := range v {
			collect(e, found, depth+1)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if depth > 0 || key == "message" || key == "error" || key == "errors" {
				collect(v[key], found, depth+1)
			}
		}
	}
}
