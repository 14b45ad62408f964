package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxAnswer is how many bytes of an answer are read; the rest is left unread.
const maxAnswer = 64 << 10

// client sends requests to the host of a Provider's address.
type client struct {
	http    *http.Client
	address *url.URL
	headers http.Header // of the Provider, on every request
	clock   clock.PassiveClock
	options Options
}

// newClient returns a client for the address, or for another if the Provider has none. The error is a Terminal fault.
func newClient(o Options, otherwise string) (*client, error) {
	address := cmp.Or(o.Address, otherwise)
	if address == "" {
		return nil, invalid("the Provider has no address").
			WithHint("Set the key address of the Secret that spec.secretRef names, or spec.address if it is no secret")
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
		// it is not told: it may be secret
		return nil, invalid("the address of the Provider is no URL of a web server").
			WithHint("Write it as https://HOST/PATH")
	}
	return &client{
		http: &http.Client{
			Transport: o.Transport,
			// what is sent is for one host
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		address: u,
		headers: o.Headers,
		clock:   o.Clock,
		options: o,
	}, nil
}

// at returns the address with a path after its own.
func (c *client) at(path ...string) *url.URL { return c.address.JoinPath(path...) }

// answer is what a host said to a request that it took.
type answer struct {
	body   []byte // 64 KiB at most
	status int
	wait   time.Duration // that the host asks for; zero when it does not
}

// postJSON sends a value as JSON. Headers are pairs of name and value; they go before those of the Provider.
// The error is a fault.
func (c *client) postJSON(ctx context.Context, to *url.URL, body any, headers ...string) (answer, error) {
	content, err := encoded(body)
	if err != nil {
		return answer{}, err
	}
	return c.send(ctx, http.MethodPost, to, content,
		append([]string{"Content-Type", "application/json"}, headers...)...)
}

// encoded writes a value as JSON, in which < and & stand as they are.
func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.New(SendFailed, "the event cannot be written as JSON").Because(err).Final()
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// postForm sends the values of a form. The error is a fault.
func (c *client) postForm(ctx context.Context, to *url.URL, form url.Values, headers ...string) (answer, error) {
	return c.send(ctx, http.MethodPost, to, []byte(form.Encode()),
		append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

// send makes one request. An answer is one of success; the error is a fault.
func (c *client) send(ctx context.Context, method string, to *url.URL, body []byte, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, invalid("the address of the Provider makes no request") // the error tells the URL
	}
	for name, values := range c.headers {
		req.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.Header.Set("User-Agent", cmp.Or(c.headers.Get("User-Agent"), "sluice"))
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, unreachable(ctx, err, to.Host)
	}
	defer func() { _ = resp.Body.Close() }() // with what is left unread, the connection goes
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil && resp.StatusCode < 300 {
		content = nil // the event was taken: sent again, it would be told twice
	}
	a := answer{body: content, status: resp.StatusCode, wait: egress.RetryAfter(resp, c.clock.Now())}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return a, refused(to.Host, resp, c.hushed(a, req.Header))
	}
	return a, nil
}

// hushed takes out of an answer what the request said in secret, before anything is cut in the midst of it.
func (c *client) hushed(a answer, sent http.Header) answer {
	o := c.options
	o.Headers = sent
	a.body = []byte(newRedactor(o).text(string(a.body)))
	return a
}

// unreachable makes a fault of a request without an answer. Errors of net/http tell the URL, so only what is
// in them counts.
func unreachable(ctx context.Context, err error, host string) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	f := fault.New(SendFailed, "the event did not get to %s", host)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return f.Because(told{"no answer came in time", err}).WithHint("Check the host, or set a longer spec.timeout")
	}
	f = f.Because(err)
	if cause := fault.As(err); cause != nil && cause.Terminal {
		f = f.Final()
	}
	return f
}

// refused makes a fault of an answer that is none of success.
func refused(host string, resp *http.Response, a answer) *fault.Fault {
	words, wait := explanation(resp.Header.Get("Content-Type"), a.body)
	f := fault.New(SendFailed, "%s answered %s", host, statusText(a.status)).After(max(a.wait, wait))
	if words != "" {
		f = f.Because(errors.New(words))
	}
	switch s := a.status; {
	case s == http.StatusTooManyRequests:
		return f.WithHint("It is sent again later; fewer events match if the Alert has a narrower eventSources or " +
			"an eventSeverity")
	case s == http.StatusForbidden && a.wait > 0:
		return f
	case s == http.StatusUnauthorized, s == http.StatusForbidden, s == http.StatusProxyAuthRequired:
		f.Reason = meta.AuthenticationFailedReason
		return f.WithHint("Renew the credentials in the Secret of the Provider, and check what they may do").Final()
	case s == http.StatusNotFound, s == http.StatusGone:
		return f.WithHint("Check address and channel of the Provider: the webhook may have been removed").Final()
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s >= 500:
		return f.WithHint("It is sent again later")
	case s >= 300 && s < 400:
		return f.WithHint("Set the address that it leads to: what is sent to one host is not sent on to another").Final()
	}
	return f.WithHint("Check type, address and channel of the Provider").Final()
}

func statusText(status int) string {
	return strings.TrimSpace(http.StatusText(status) + " (" + itoa(status) + ")")
}

// maxWords is how many characters of an answer are told.
const maxWords = 300

// explanation reads what a host says of why it does not take a request, in the words and the seconds that the
// hosts have for it.
func explanation(contentType string, body []byte) (words string, wait time.Duration) {
	var doc any
	if json.Unmarshal(body, &doc) == nil {
		if m, ok := doc.(map[string]any); ok {
			return excerpt.Chars(line(wordsOf(m)), maxWords), waitOf(m)
		}
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == "text/html" { // a page, and no reason
		return "", 0
	}
	return excerpt.Chars(line(string(body)), maxWords), 0
}

func wordsOf(m map[string]any) string {
	for _, key := range []string{"message", "msg", "description", "detail", "error_description", "error", "errors",
		"errcode"} {
		switch v := m[key].(type) {
		case string:
			if v != "" {
				return v
			}
		case map[string]any:
			if w := wordsOf(v); w != "" {
				return w
			}
		case []any:
			for _, item := range v {
				switch item := item.(type) {
				case string:
					return item
				case map[string]any:
					if w := wordsOf(item); w != "" {
						return w
					}
				}
			}
		}
	}
	return ""
}

// waitOf reads retry_after and retry-after in seconds (Discord, Telegram, Zulip) and retry_after_ms (Matrix).
func waitOf(m map[string]any) time.Duration {
	if p, ok := m["parameters"].(map[string]any); ok {
		m = p
	}
	for key, unit := range map[string]time.Duration{"retry_after": time.Second, "retry-after": time.Second,
		"retry_after_ms": time.Millisecond} {
		if n, ok := m[key].(float64); ok && n > 0 {
			return time.Duration(min(n*float64(unit), float64(time.Hour)))
		}
	}
	return 0
}
