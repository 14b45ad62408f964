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
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// maxResponse is how many bytes of a response are read; the connection is closed if there are more.
const maxResponse = 64 << 10

// client sends requests to the host of a Provider's address. It does not follow redirects.
type client struct {
	http    *http.Client
	address *url.URL
	headers http.Header // from the Secret, for every request
	clock   clock.PassiveClock
	options Options
}

// newClient returns a client for the address of the Provider, or for a default. The error is a Terminal fault.
func newClient(o Options, defaultAddress string) (*client, error) {
	address := cmp.Or(o.Address, defaultAddress)
	if address == "" {
		return nil, invalid("the Provider has no address").
			WithHint("Set the key address of the Secret in spec.secretRef, or spec.address if it is not confidential")
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
		// without the address, which may be confidential
		return nil, invalid("the address of the Provider is not an HTTP URL").
			WithHint("Write it as https://HOST/PATH")
	}
	return &client{
		http: &http.Client{
			Transport: o.Transport,
			// events must not be sent to other hosts
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		address: u,
		headers: o.Headers,
		clock:   o.Clock,
		options: o,
	}, nil
}

// url returns the address with a path appended.
func (c *client) url(path ...string) *url.URL { return c.address.JoinPath(path...) }

// response is the response of a service.
type response struct {
	body   []byte // at most maxResponse bytes
	status int
	wait   time.Duration // from Retry-After; zero if absent
	hidden bool          // the body must not be quoted
}

// quote returns a part of the body for an error message.
func (r response) quote(text string) string {
	if r.hidden {
		return "its answer is not shown, because the server has a private address"
	}
	return excerpt.Chars(singleLine(text), maxErrorText)
}

// postJSON sends a value as JSON. Headers are pairs of name and value; they override headers of the Provider.
// The error is a fault.
func (c *client) postJSON(ctx context.Context, to *url.URL, body any, headers ...string) (response, error) {
	content, err := encodeJSON(body)
	if err != nil {
		return response{}, err
	}
	return c.send(ctx, http.MethodPost, to, content,
		append([]string{"Content-Type", "application/json"}, headers...)...)
}

// object is a JSON object, as the documentation of a service shows it.
type object map[string]any

// setText sets a field to a text; an empty one is left out.
func (o object) setText(field, text string) {
	if text != "" {
		o[field] = text
	}
}

// encodeJSON encodes a value as JSON without escaping <, > and &.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fault.New(SendFailed, "cannot encode the event as JSON").Because(err).Final()
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// postForm sends form values. The error is a fault.
func (c *client) postForm(ctx context.Context, to *url.URL, form url.Values, headers ...string) (response, error) {
	return c.send(ctx, http.MethodPost, to, []byte(form.Encode()),
		append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

// send makes one request. The error is a fault: the request failed, or the status is not 2xx.
func (c *client) send(ctx context.Context, method string, to *url.URL, body []byte, headers ...string) (response,
	error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return response{}, invalid("the address of the Provider is not valid") // the error contains the URL
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
		return response{}, transportFault(ctx, err, to.Host)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil && resp.StatusCode < 300 {
		content = nil // the event was accepted; a retry would duplicate it
	}
	a := response{body: content, status: resp.StatusCode, wait: egress.RetryAfter(resp, c.clock.Now()),
		hidden: !egress.MayQuote(resp)}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return a, statusFault(to.Host, resp, c.redacted(a, req.Header))
	}
	return a, nil
}

// redacted removes the credentials of a request from its response, before the response is truncated.
func (c *client) redacted(a response, sent http.Header) response {
	o := c.options
	o.Headers = sent
	a.body = []byte(newRedactor(o).text(string(a.body)))
	return a
}

// transportFault returns the fault of a request without a response.
func transportFault(ctx context.Context, err error, host string) error {
	err = fault.WithoutURL(err)
	f := fault.New(SendFailed, "cannot send the event to %s", host)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return f.Because(redact.Reword(err, "timeout waiting for a response")).
			WithHint("Check that the host answers, or raise spec.timeout")
	}
	f = f.Because(err)
	if cause := fault.As(err); cause != nil && cause.Terminal {
		f = f.Final()
	}
	return f
}

// statusFault returns the fault of a response whose status is not 2xx.
func statusFault(host string, resp *http.Response, a response) *fault.Fault {
	text, wait := parseError(resp.Header.Get("Content-Type"), a.body)
	if a.hidden {
		text = ""
	}
	f := fault.New(SendFailed, "%s returned %s", host, statusText(a.status)).After(max(a.wait, wait))
	if text != "" {
		f = f.Because(errors.New(text))
	}
	switch s := a.status; {
	case s == http.StatusTooManyRequests:
		return f.WithHint("The event will be retried. To send fewer events, narrow spec.eventSources of the " +
			"Alert or set spec.eventSeverity to error")
	case s == http.StatusForbidden && a.wait > 0:
		return f
	case s == http.StatusProxyAuthRequired:
		f.Reason = meta.AuthenticationFailedReason
		return f.WithHint("Check username and password in the Secret of spec.proxySecretRef").Final()
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		f.Reason = meta.AuthenticationFailedReason
		return f.WithHint("Check the credentials in the Secret of spec.secretRef and their permissions; set it if " +
			"the service needs a login").Final()
	case s == http.StatusRequestEntityTooLarge:
		return f.WithHint("The service does not take an event of this size; the next one may be smaller").Final()
	case s == http.StatusNotFound, s == http.StatusGone:
		return f.WithHint("Check the address and channel of the Provider; the webhook may have been deleted").Final()
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s >= 500:
		return f.WithHint("The event will be retried")
	case s >= 300 && s < 400:
		return f.WithHint("Set the address to the target of the redirect; redirects are not followed").Final()
	}
	return f.WithHint("Check the type, address and channel of the Provider").Final()
}

func statusText(status int) string {
	return strings.TrimSpace(http.StatusText(status) + " (" + itoa(status) + ")")
}

// maxErrorText is how many characters of a response are included in an error.
const maxErrorText = 300

// parseError extracts the error text and the requested wait from a response, in the formats of the supported
// services.
func parseError(contentType string, body []byte) (text string, wait time.Duration) {
	var doc any
	if json.Unmarshal(body, &doc) == nil {
		if m, ok := doc.(map[string]any); ok {
			return excerpt.Chars(singleLine(errorText(m)), maxErrorText), retryAfterOf(m)
		}
	}
	if media, _, _ := mime.ParseMediaType(contentType); media == "text/html" { // a page for browsers
		return "", 0
	}
	return excerpt.Chars(singleLine(string(body)), maxErrorText), 0
}

// errorText returns the first text in the fields that services use for errors.
func errorText(m map[string]any) string {
	for _, key := range []string{"message", "msg", "description", "detail", "error_description", "error", "errors",
		"errcode"} {
		switch v := m[key].(type) {
		case string:
			if v != "" {
				return v
			}
		case map[string]any:
			if text := errorText(v); text != "" {
				return text
			}
		case []any:
			for _, item := range v {
				switch item := item.(type) {
				case string:
					return item
				case map[string]any:
					if text := errorText(item); text != "" {
						return text
					}
				}
			}
		}
	}
	return ""
}

// retryAfterOf returns retry_after and retry-after in seconds (Discord, Telegram, Zulip) and retry_after_ms (Matrix).
func retryAfterOf(m map[string]any) time.Duration {
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
