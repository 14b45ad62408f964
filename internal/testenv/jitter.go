package testenv

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"
)

// jitterEnv is a duration, such as 500ms, by up to which some of the cluster's answers and events are late. A
// whole run with it finds tests that look at what the server has and take it for what a controller knows.
const jitterEnv = "SLUICE_TEST_JITTER"

// late delays one in four answers, and one in four reads of a watch.
type late struct {
	next http.RoundTripper
	most time.Duration
}

// jitter returns what wraps a client's transport, and nil if no jitter is asked for.
func jitter() (func(http.RoundTripper) http.RoundTripper, error) {
	text := os.Getenv(jitterEnv)
	if text == "" {
		return nil, nil
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 {
		return nil, fmt.Errorf("%s=%s is no time above zero, such as 500ms", jitterEnv, text)
	}
	return func(next http.RoundTripper) http.RoundTripper { return late{next, most} }, nil
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	l.pause()
	if err == nil && r.URL.Query().Has("watch") {
		answer.Body = lateBody{answer.Body, l}
	}
	return answer, err
}

func (l late) pause() {
	if rand.N(4) == 0 {
		<-time.After(rand.N(l.most))
	}
}

type lateBody struct {
	io.ReadCloser
	late
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.pause()
	return n, err
}
