package egress

import (
	"net/http"
	"net/url"
)

const maxRedirects = 5

// travels are the headers that may follow a redirect to another host: what says which content is wanted, and
// nothing of who asks.
var travels = []string{"Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "Git-Protocol",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range", "User-Agent"}

// redirected judges a request that a redirect caused, and returns it as it may be sent. It stands in the
// transport and not in the client, because libraries bring clients of their own.
func redirected(req *http.Request) (*http.Request, error) {
	hops, strange := 0, false
	for at := req; at.Response != nil && at.Response.Request != nil; at = at.Response.Request {
		from := at.Response.Request
		hops++
		if hops > maxRedirects {
			return nil, failed("%s redirects more than %d times", hostPort(from.URL), maxRedirects).
				WithHint("Check the URL")
		}
		if from.URL.Scheme == "https" && at.URL.Scheme != "https" {
			return nil, failed("%s redirects from https to %s, which is not followed", hostPort(from.URL),
				at.URL.Scheme).
				WithHint("Check the URL, and who answers for the host")
		}
		strange = strange || !sameOrigin(from.URL, at.URL)
	}
	if !strange {
		return req, nil
	}
	if req.Body != nil && req.Body != http.NoBody {
		return nil, failed("%s redirects a request with content to another host, which is not followed",
			hostPort(req.Response.Request.URL)).
			WithHint("Use the URL that it redirects to")
	}
	out := req.Clone(req.Context())
	out.Header = http.Header{}
	for _, name := range travels {
		if v := req.Header.Values(name); v != nil {
			out.Header[name] = v
		}
	}
	return out, nil
}

// sameOrigin allows for the step from http to https, which changes the port.
func sameOrigin(from, to *url.URL) bool {
	if from.Scheme == "http" && to.Scheme == "https" {
		return from.Port() == "" && hostPort(from) == hostPort(to)
	}
	return from.Scheme == to.Scheme && hostPort(from) == hostPort(to)
}
