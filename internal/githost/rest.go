package githost

import (
	"bytes"
	"context"
	"encoding/base64"
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
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const (
	maxResponse  = 16 << 20 // bytes: a hundred long comments
	maxErrorText = 200      // characters of an error message from a host
	pageSize     = 100
	maxPages     = 20
)

// rest is a client for JSON over HTTP.
type rest struct {
	kind   Kind
	root   url.URL // of the API, for requests that are not about the repository
	api    url.URL // of the repository: base of all other paths
	query  url.Values
	size   string // name of the parameter for the size of a page
	header http.Header
	login  Login
	client *http.Client
	clock  clock.PassiveClock
}

func newREST(o Options, login Login) *rest {
	r := &rest{kind: o.Repository.Kind, api: o.Repository.Base, size: "per_page", header: http.Header{}, login: login,
		clock: o.Clock, client: &http.Client{Transport: o.Transport, CheckRedirect: checkRedirect}}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	return r
}

// top returns a client for paths that are not below the repository.
func (r *rest) top() *rest {
	c := *r
	c.api = r.root
	return &c
}

// checkRedirect follows up to 5 redirects, for renamed repositories, unless a write would become a read. The HTTP
// client does not send credentials to other hosts.
func checkRedirect(next *http.Request, past []*http.Request) error {
	if next.Method != past[0].Method || len(past) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// rejection is a response whose status is not 2xx.
type rejection struct {
	status int
	text   string // error message from the host; may be empty
	hidden bool   // the text must not be shown
	scopes string // of the token, if the host tells them
}

func (r *rejection) Error() string {
	if r.text == "" || r.hidden {
		return fmt.Sprintf("status %d", r.status)
	}
	return fmt.Sprintf("status %d, %q", r.status, r.text)
}

// rejectionOf returns the rejection in the chain of err, or an empty one.
func rejectionOf(err error) rejection {
	var r *rejection
	if errors.As(err, &r) {
		return *r
	}
	return rejection{}
}

// do sends a request and decodes the response into out, unless out is nil. The parts of path are not escaped; what
// describes the subject of the request in errors.
func (r *rest) do(ctx context.Context, what, method string, path []string, query url.Values, in, out any) error {
	_, err := r.send(ctx, what, method, path, query, in, out)
	return err
}

// page requests a page of a list. It reports whether there are more pages, from the Link header of RFC 8288.
func (r *rest) page(ctx context.Context, what string, path []string, query url.Values, page int, out any) (bool,
	error) {
	all := url.Values{r.size: {strconv.Itoa(pageSize)}, "page": {strconv.Itoa(page)}}
	maps.Copy(all, query)
	header, err := r.send(ctx, what, http.MethodGet, path, all, nil, out)
	return strings.Contains(header.Get("Link"), `rel="next"`), err
}

// first returns the first match in the pages of a list, or nil.
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
			return nil, failed("cannot encode %s as JSON", what).Because(err).Final()
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
		return nil, fault.New(meta.URLInvalidReason, "the address of %s is not valid", r.api.Host).Final()
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
		return nil, failed("request to %s for %s failed", r.api.Host, what).Because(fault.WithoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return nil, failed("cannot read the response of %s for %s", r.api.Host, what).Because(err)
	}
	// Azure DevOps returns a login page with 203 if the login is not valid.
	if resp.StatusCode/100 != 2 || resp.StatusCode == http.StatusNonAuthoritativeInfo {
		return nil, r.explain(what, resp, raw, login)
	}
	if out == nil {
		return resp.Header, nil
	}
	// The decoding error may quote the response, so it is not included.
	if len(raw) > maxResponse || json.Unmarshal(raw, out) != nil {
		return nil, failed("unexpected response of %s for %s: not the documented format of %s", r.api.Host, what,
			r.kind).
			WithHint(otherHostHint).Final()
	}
	return resp.Header, nil
}

// otherHostHint is the hint if responses are not from the API of the declared type of host.
const otherHostHint = "Check the address and the type of the host, and the login"

// notFoundHint is the hint if what a request is about does not exist. Callers that know more replace it.
const notFoundHint = "Check the address and that the login has access to the repository"

// explain returns the fault of a rejection.
func (r *rest) explain(what string, resp *http.Response, raw []byte, login auth.GitCredentials) error {
	basic := base64.StdEncoding.EncodeToString([]byte(login.Username + ":" + login.Password))
	why := &rejection{status: resp.StatusCode, text: errorText(raw, login.Password, login.BearerToken, basic),
		hidden: !egress.MayQuote(resp),
		scopes: excerpt.Chars(singleLine(resp.Header.Get("X-Oauth-Scopes")), maxErrorText)}
	wait := egress.RetryAfter(resp, r.clock.Now())
	f := failed("%s refused %s", r.api.Host, what).Because(why)
	switch status := resp.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusForbidden && wait > 0:
		return failed("rate limit of %s exceeded for %s", r.api.Host, what).Because(why).After(wait)
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return failed("%s failed at %s", r.api.Host, what).Because(why).After(wait)
	case status == http.StatusUnauthorized, status == http.StatusNonAuthoritativeInfo:
		f.Reason = meta.AuthenticationFailedReason
		f = f.WithHint("Renew the login in the Secret; it is wrong or has expired")
	case status == http.StatusForbidden:
		f.Reason = meta.AuthenticationFailedReason
		f = f.WithHint("Grant the login in the Secret the required permission")
	case status == http.StatusNotFound:
		f = f.WithHint(notFoundHint)
	case status/100 == 3:
		f = f.WithHint("The repository may have moved; correct the address")
	}
	return f.Final()
}

var anyURL = regexp.MustCompile(`[a-z]+://\S+`)

// errorText returns the error message in a response, without secrets and URLs.
func errorText(raw []byte, secrets ...string) string {
	var body any
	if json.Unmarshal(raw, &body) != nil {
		return ""
	}
	var found []string
	collect(body, &found, 0)
	text := redact.Text(singleLine(strings.Join(found, "; ")), secrets...)
	return excerpt.Chars(anyURL.ReplaceAllString(text, redact.Masked), maxErrorText)
}

// collect gathers the texts in the fields message, error and errors, which are texts, lists, or lists by field.
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
