package bucket

import (
	"context"
	"io"
	"net/http"
)

const (
	maxPage     = 1000         // objects of a page of a listing; requested from the server
	maxResponse = 4 << 20      // bytes of a response that is not the content of an object, after decompression
	maxElements = 64 * maxPage // XML elements of such a response; the smallest take 50 times their size in memory
)

// limiter bounds the responses of a provider, which clients decode before they check anything. Contents of objects are
// not bounded, as the cache reads no more of them than the listing says.
type limiter struct{ next http.RoundTripper }

// contentKey is the key of contexts of requests for the content of an object.
type contentKey struct{}

// forContent returns the context of a request for the content of an object.
func forContent(ctx context.Context) context.Context {
	return context.WithValue(ctx, contentKey{}, true)
}

// RoundTrip implements [http.RoundTripper].
func (l *limiter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil || isContent(resp, req) {
		return resp, err
	}
	resp.Body = &limited{ReadCloser: resp.Body, bytes: maxResponse, elements: maxElements}
	return resp, nil
}

// isContent reports whether a response is the content of an object. The client of S3 may send a request for the
// location of the bucket or for keys on the way, with the same context.
func isContent(resp *http.Response, req *http.Request) bool {
	return resp.StatusCode/100 == 2 && req.Method == http.MethodGet && req.Context().Value(contentKey{}) != nil &&
		!req.URL.Query().Has("location")
}

// limited is a body that fails after a number of bytes or of XML elements. It does not parse XML, so that a "<" in a
// comment counts as well.
type limited struct {
	io.ReadCloser
	bytes, elements int   // until the limit
	opened          bool  // the last byte was a "<"
	err             error // that ended the body
}

// Read implements [io.Reader].
func (b *limited) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.bytes+1)])
	b.bytes -= n
	for _, c := range p[:n] {
		if b.opened && c != '/' {
			b.elements--
		}
		b.opened = c == '<'
	}
	switch {
	case b.bytes < 0:
		b.err = tooLarge("%d bytes", maxResponse)
	case b.elements < 0:
		b.err = tooLarge("%d XML elements", maxElements)
	default:
		return n, err
	}
	_ = b.Close() // not every caller does after an error
	return 0, b.err
}

// tooLarge is the fault of a response that exceeds a limit.
func tooLarge(limit string, n int) error {
	return failed("the response exceeds "+limit, n).
		WithHint("Check the endpoint: a page of a listing has at most %d objects, and other responses are short",
			maxPage)
}
