package egress

import (
	"net/http"
	"net/url"
)

const maxRedirects = 5

// forwardedHeaders are the headers that a redirect to another host keeps: they select the content, and do not identify
// the caller.
var forwardedHeaders = []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "Git-Protocol",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range", "User-Agent"}

// checkRedirect checks a request that a redirect caused, and returns the request to send. The transport does it and not
// the client, since libraries use their own clients.
func checkRedirect(req *http.Request) (*http.Request, error) {
	hops, otherOrigin := 0, false
	for at := req; at.Response != nil && at.Response.Request != nil; at = at.Response.Request {
		from := at.Response.Request
		hops++
		if hops > maxRedirects {
			return nil, failed("host '%s' redirects more than %d times", hostPort(from.URL), maxRedirects).
				WithHint("Set the URL to the final address of the redirects, if there is one")
		}
		if from.URL.Scheme == "https" && at.URL.Scheme != "https" {
			return nil, failed("host '%s' redirects from https to %s, which is not allowed", hostPort(from.URL),
				at.URL.Scheme).
				WithHint("Check the URL, and who controls the host")
		}
		otherOrigin = otherOrigin || !sameOrigin(from.URL, at.URL)
	}
	if !otherOrigin {
		return req, nil
	}
	if req.Body != nil && req.Body != http.NoBody {
		return nil, failed("host '%s' redirects a request with a body to another host, which is not allowed",
			hostPort(req.Response.Request.URL)).
			WithHint("Use the URL of the other host")
	}
	out := req.Clone(req.Context())
	out.Header = http.Header{}
	for _, name := range forwardedHeaders {
		if v := req.Header.Values(name); v != nil {
			out.Header[name] = v
		}
	}
	return out, nil
}

// FirstRequest returns the first request of the chain of redirects that led to a request; itself if there is none.
func FirstRequest(req *http.Request) *http.Request {
	for req.Response != nil && req.Response.Request != nil {
		req = req.Response.Request
	}
	return req
}

// sameOrigin reports whether two URLs have the same origin. A step from http to https, both with the default
// port, is allowed.
func sameOrigin(from, to *url.URL) bool {
	if from.Scheme == "http" && to.Scheme == "https" {
		return from.Port() == "" && hostPort(from) == hostPort(to)
	}
	return from.Scheme == to.Scheme && hostPort(from) == hostPort(to)
}
