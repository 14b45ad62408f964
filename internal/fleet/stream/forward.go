package stream

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// requestHeaders are what clusters get of a request. Others may be meant for the hub or a proxy before it.
var requestHeaders = []string{"Accept", "Accept-Language", "Content-Type", "Last-Event-Id", "Origin", "Sec-Fetch-Dest",
	"Sec-Fetch-Mode", "Sec-Fetch-Site", "User-Agent", "X-Sluice-Csrf"}

// answerHeaders are what users get of an answer, besides its cookies and where a login leads.
var answerHeaders = []string{"Content-Length", "Retry-After"}

// answerTypes are the media types of answers. No browser runs a script in one of them, or shows it as a page.
var answerTypes = []string{"application/json", "text/event-stream", "application/octet-stream", "text/plain"}

// policy is for a browser that shows an answer as a page all the same.
const policy = "default-src 'none'; frame-ancestors 'none'; sandbox"

// Forward sends a request of a user to a cluster, and its answer to the user. The path of the request is that at the
// cluster. The cluster gets its own cookies and the bearer token of the request only. Of its answer, only data reaches
// the user: JSON, events and files, which the pages of the hub show. So a hostile cluster has no script in the origin
// of the hub, where the sessions of the user at the hub and at all other clusters are.
func (h *Hub) Forward(w http.ResponseWriter, r *http.Request, cluster string) {
	l := h.link(cluster)
	if isForwarded := r.Header.Get(forwardedHeader) != ""; isForwarded && isProbe(r) {
		answerProbe(w, l != nil)
		return
	} else if l == nil && !isForwarded && h.toPeer(w, r, cluster) {
		return
	}
	switch {
	case l == nil:
		fail(w, http.StatusServiceUnavailable, "cluster '"+cluster+"' has no stream to the hub, so only its summary "+
			"can be shown", "See its controller's log for 'stream to the hub'. A new stream can take 30 seconds")
	case !isAPI(r.URL.Path):
		fail(w, http.StatusNotFound, "the hub has the pages of cluster '"+cluster+"', not the cluster",
			"Open "+PagesPrefix(cluster)+"/")
	case !h.requests.Open(cluster, maxAll, maxRequests):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d requests to cluster '%s', or %d to all, are in work",
			maxRequests, cluster, maxAll), "Close pages that show clusters, and try again")
	default:
		defer h.requests.Close(cluster)
		h.send(w, r, cluster, l)
	}
}

// send sends a request on a stream.
func (h *Hub) send(w http.ResponseWriter, r *http.Request, cluster string, l *link) {
	resp, err := l.client.RoundTrip(outgoing(w, r, cluster))
	if err != nil {
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			fail(w, http.StatusRequestEntityTooLarge, "the body of the request is too large", "")
		case r.Context().Err() == nil:
			fail(w, http.StatusBadGateway, "cluster '"+cluster+"' did not answer on its stream: "+err.Error(),
				"Try again")
		}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if err := h.copyHeader(w.Header(), resp, r.URL.Path, cluster); err != nil {
		h.Log.Info("the answer of a cluster was refused", "cluster", cluster, "reason", err.Error())
		clear(w.Header())
		fail(w, http.StatusBadGateway, "the answer of cluster '"+cluster+"' was refused: "+err.Error(), "")
		return
	}
	w.WriteHeader(resp.StatusCode)
	copyBody(w, resp.Body)
}

// outgoing returns the request for the cluster.
func outgoing(w http.ResponseWriter, r *http.Request, cluster string) *http.Request {
	out := &http.Request{Method: r.Method, Host: r.Host, Header: http.Header{}, ContentLength: r.ContentLength,
		URL: &url.URL{Scheme: "http", Host: "cluster", Path: r.URL.Path, RawPath: r.URL.RawPath,
			RawQuery: r.URL.RawQuery}}
	if r.ContentLength != 0 {
		out.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	for _, name := range requestHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	if login := r.Header.Get("Authorization"); len(login) > 7 && strings.EqualFold(login[:7], "bearer ") {
		out.Header.Set("Authorization", login)
	}
	for _, c := range r.Cookies() {
		if name, ok := ownCookie(c.Name, cluster); ok {
			out.AddCookie(&http.Cookie{Name: name, Value: c.Value, Quoted: c.Quoted})
		}
	}
	return out.WithContext(r.Context())
}

// copyHeader sets the header of the answer to the user.
func (h *Hub) copyHeader(to http.Header, resp *http.Response, at, cluster string) error {
	for _, name := range answerHeaders {
		if v := resp.Header.Get(name); v != "" {
			to.Set(name, v)
		}
	}
	to.Set("Cache-Control", "no-store")
	to.Set("Content-Security-Policy", policy)
	to.Set("X-Content-Type-Options", "nosniff")
	to.Set("Referrer-Policy", "no-referrer")
	to.Set("Cross-Origin-Resource-Policy", "same-origin")
	setCookies(to, resp, cluster)
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return h.redirect(to, resp, at, cluster)
	}
	return setType(to, resp)
}

// setType sets the type of an answer, if it is data.
func setType(to http.Header, resp *http.Response) error {
	given := resp.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(given)
	if given == "" && resp.ContentLength == 0 {
		return nil
	}
	if err != nil || !slices.Contains(answerTypes, kind) {
		if kind == "text/html" {
			return errors.New("it is a page. The log of its controller says why")
		}
		return fmt.Errorf("its type is %.100q", given)
	}
	if strings.HasPrefix(kind, "text/") {
		kind += "; charset=utf-8"
	}
	to.Set("Content-Type", kind)
	if kind == "application/octet-stream" {
		_, given, _ := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
		name := map[string]string{"filename": given["filename"]}
		to.Set("Content-Disposition", mime.FormatMediaType("attachment", name))
	}
	return nil
}

// redirect sets where an answer leads: from the start of a login to a login provider, and from its end to the pages of
// the cluster. Nothing else leads anywhere.
func (h *Hub) redirect(to http.Header, resp *http.Response, at, cluster string) error {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		return errors.New("it leads to an address that cannot be read")
	}
	switch {
	case at == "/login/oidc" && u.Scheme == "https" && u.User == nil && slices.Contains(h.LoginHosts, u.Host):
		to.Set("Location", u.String())
	case at == "/login/callback" && u.Scheme == "" && u.Host == "":
		to.Set("Location", PagesPrefix(cluster)+cleanPath(u))
	default:
		return fmt.Errorf("it leads to %.100q, which is outside of the cluster's part of the hub", u.Redacted())
	}
	to.Set("Content-Length", "0")
	return nil
}

// cleanPath returns a path and query below the pages of a cluster. Browsers take %2e for a dot, so the decoded path is
// cleaned.
func cleanPath(u *url.URL) string {
	return (&url.URL{Path: path.Clean("/" + u.Path), RawQuery: u.RawQuery}).String()
}

// copyBody sends what arrives at once. It ends when the user does not take it.
func copyBody(w http.ResponseWriter, from io.Reader) {
	out := http.NewResponseController(w)
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			_ = out.SetWriteDeadline(time.Now().Add(takeTimeout))
			if _, err := w.Write(buffer[:n]); err != nil || out.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // so that the user does not take the answer for complete
		}
	}
}

// cookies are the names that a cluster may use for cookies: those of its sessions and of its logins.
var cookies = []string{"sluice-session", "sluice-login"}

// maxCookie bounds the value of a cookie, in bytes.
const maxCookie = 4 << 10

// hubCookie returns the name in the browser of a cookie of a cluster. It has the name of the cluster in it, so that no
// mistake about paths sends it to another cluster.
func hubCookie(name, cluster string, isSecure bool) string {
	name = "sluice-at." + cluster + "." + name
	if isSecure {
		return "__Secure-" + name
	}
	return name
}

// ownCookie returns the name at a cluster of a cookie in the browser, and whether it is a cookie of the cluster.
func ownCookie(name, cluster string) (string, bool) {
	name, isSecure := strings.CutPrefix(name, "__Secure-")
	own, ok := strings.CutPrefix(name, "sluice-at."+cluster+".")
	if !ok || !slices.Contains(cookies, own) {
		return "", false
	}
	if isSecure {
		own = "__Host-" + own
	}
	return own, true
}

// setCookies sets the cookies of an answer. They are sent to this cluster only, and no script can read them.
func setCookies(to http.Header, resp *http.Response, cluster string) {
	own := map[string]*http.Cookie{}
	for _, c := range resp.Cookies() {
		name, isSecure := strings.CutPrefix(c.Name, "__Host-")
		if !slices.Contains(cookies, name) || len(c.Value) > maxCookie {
			continue
		}
		site := http.SameSiteStrictMode
		if name == "sluice-login" {
			site = http.SameSiteLaxMode // it survives the way through the login provider
		}
		own[name] = &http.Cookie{Name: hubCookie(name, cluster, isSecure), Value: c.Value, Quoted: c.Quoted,
			Path: Prefix(cluster) + "/", MaxAge: c.MaxAge, HttpOnly: true, Secure: isSecure, SameSite: site}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		to.Add("Set-Cookie", own[name].String())
	}
}
