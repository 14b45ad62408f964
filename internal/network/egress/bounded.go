package egress

import "net/http"

// Bounded is a transport whose responses fail after a number of bytes. It is for libraries that read all of a response
// before they look at it.
type Bounded struct {
	Next  http.RoundTripper
	Bytes int64
}

// RoundTrip implements [http.RoundTripper].
func (b Bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, b.Bytes)
	}
	return resp, err
}
