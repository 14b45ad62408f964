package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxRedirects = 5
	infoRefs     = "/info/refs"
)

// overHTTP is a conversation over smart HTTP, gitprotocol-http(5).
type overHTTP struct {
	service string
	base    *url.URL // of the repository, without user info
	login   http.Header
	client  *http.Client
	done    func() // releases client
	counts  *counts
	body    io.Closer // of the current answer
}

func newHTTP(remote Remote, service string, u *url.URL, counts *counts) (*overHTTP, error) {
	client, done, err := newClient(remote)
	if err != nil {
		return nil, err
	}
	h := &overHTTP{service: service, counts: counts, login: login(remote, u), client: client, done: done}
	h.client.CheckRedirect = h.redirect
	base := *u
	base.User, base.Fragment, base.RawQuery = nil, "", ""
	h.base = &base
	return h, nil
}

// newClient returns a client with the transport of the remote's egress policy. done closes the connections of a policy
// that is not shared.
func newClient(remote Remote) (client *http.Client, done func(), err error) {
	c := remote.Credentials
	options := egress.Options{TLS: auth.TLS{CA: c.CA, Cert: c.ClientCert, Key: c.ClientKey}}
	if remote.ProxyURL != "" {
		if options.Proxy, err = url.Parse(remote.ProxyURL); err != nil || options.Proxy.Host == "" {
			return nil, nil, invalidProxy()
		}
	}
	policy, done := remote.egress(), func() {}
	if remote.Egress == nil {
		done = policy.CloseIdleConnections
	}
	transport, err := policy.Transport(options)
	return &http.Client{Transport: transport}, done, err
}

// login returns the header with the credentials; the user info of the URL if there are none.
func login(remote Remote, u *url.URL) http.Header {
	c := remote.Credentials
	r := http.Request{Header: http.Header{}}
	password, _ := u.User.Password()
	switch {
	case c.BearerToken != "":
		r.Header.Set("Authorization", "Bearer "+c.BearerToken)
	case c.Username != "" || c.Password != "":
		r.SetBasicAuth(c.Username, c.Password)
	case u.User != nil:
		r.SetBasicAuth(u.User.Username(), password)
	}
	return r.Header
}

// redirect allows redirects of the first request only, as git does, and drops the credentials for another host.
func (h *overHTTP) redirect(next *http.Request, via []*http.Request) error {
	switch {
	case next.Method != http.MethodGet || len(via) > maxRedirects:
		return errRedirect
	case next.URL.Scheme != "https" && next.URL.Scheme != via[len(via)-1].URL.Scheme:
		return fmt.Errorf("%w, from %s to %s", errRedirect, via[len(via)-1].URL.Scheme, next.URL.Scheme)
	}
	if !strings.EqualFold(next.URL.Host, h.base.Host) && !sameHost(next.URL, h.base) {
		h.login = nil // for all further requests, even if a redirect leads back
	}
	next.Header.Del("Authorization")
	for name, values := range h.login {
		next.Header[name] = values
	}
	return nil
}

// sameHost reports whether a is b after a step from http to https, which changes the port.
func sameHost(a, b *url.URL) bool {
	return strings.EqualFold(a.Hostname(), b.Hostname()) && a.Scheme == "https" && b.Scheme == "http" &&
		a.Port() == "" && b.Port() == ""
}

func (h *overHTTP) open(ctx context.Context) (io.Reader, error) {
	u := h.base.JoinPath(infoRefs)
	u.RawQuery = "service=" + h.service
	resp, err := h.do(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	if got := resp.Header.Get("Content-Type"); got != "application/x-"+h.service+"-advertisement" {
		return nil, fmt.Errorf("%w: its content type is %q", errNotGit, Printable(got))
	}
	final := *resp.Request.URL
	var ok bool
	if final.Path, ok = strings.CutSuffix(final.Path, infoRefs); !ok {
		return nil, errRedirect
	}
	final.RawPath, final.RawQuery = strings.TrimSuffix(final.RawPath, infoRefs), ""
	h.base = &final
	return resp.Body, nil
}

func (h *overHTTP) send(ctx context.Context, request []byte) (io.Reader, error) {
	resp, err := h.do(ctx, http.MethodPost, h.base.JoinPath(h.service), request)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (h *overHTTP) do(ctx context.Context, method string, u *url.URL, request []byte) (*http.Response, error) {
	h.closeBody()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", agent)
	for name, values := range h.login {
		req.Header[name] = values
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-"+h.service+"-request")
		req.Header.Set("Accept", "application/x-"+h.service+"-result")
	}
	h.counts.requests.Add(1)
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, fault.WithoutURL(err) // the fault names the URL
	}
	h.body = resp.Body
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{resp.StatusCode, egress.RetryAfter(resp, time.Now())}
	}
	resp.Body = counted{resp.Body, h.counts}
	return resp, nil
}

func (h *overHTTP) closeBody() {
	if h.body != nil {
		_ = h.body.Close() // it was read to its end, or is not needed
		h.body = nil
	}
}

func (h *overHTTP) close() {
	h.closeBody()
	h.done()
}

// counted counts the bytes that are read.
type counted struct {
	io.ReadCloser
	counts *counts
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.counts.bytes.Add(int64(n))
	return n, err
}
