package testenv

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"
)

// jitterEnv is the maximum delay, such as 500ms, that is added to some responses and events of the cluster. A test run
// with it finds tests that read an object from the server and expect that a controller has seen it as well.
const jitterEnv = "SLUICE_TEST_JITTER"

// jitterTransport delays one in four responses, and one in four reads of a watch.
type jitterTransport struct {
	next http.RoundTripper
	max  time.Duration
}

// jitter returns a wrapper of a client's transport, or nil if no jitter is configured.
func jitter() (func(http.RoundTripper) http.RoundTripper, error) {
	text := os.Getenv(jitterEnv)
	if text == "" {
		return nil, nil
	}
	maxDelay, err := time.ParseDuration(text)
	if err != nil || maxDelay <= 0 {
		return nil, fmt.Errorf("%s=%s: want a positive duration, such as 500ms", jitterEnv, text)
	}
	return func(next http.RoundTripper) http.RoundTripper { return jitterTransport{next, maxDelay} }, nil
}

func (j jitterTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := j.next.RoundTrip(r)
	j.pause()
	if err == nil && r.URL.Query().Has("watch") {
		resp.Body = jitterBody{resp.Body, j}
	}
	return resp, err
}

func (j jitterTransport) pause() {
	if rand.N(4) == 0 {
		<-time.After(rand.N(j.max))
	}
}

type jitterBody struct {
	io.ReadCloser
	jitterTransport
}

func (b jitterBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pause()
	return n, err
}
