package egress

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxWait     = time.Hour   // longer wishes are cut to it
	defaultWait = time.Minute // after a status 429 that says no time, as GitHub documents
)

// RetryAfter reads how long a host asks to be left alone; zero when it does not.
//
//   - Retry-After with the statuses 429, 403 and 503 (RFC 9110, 10.2.3), or Docker Hub's X-Retry-After
//   - X-RateLimit-Remaining and X-RateLimit-Reset of GitHub, RateLimit-Remaining and RateLimit-Reset of
//     GitLab: once nothing remains
//   - RateLimit-Limit "100;w=21600" of Docker Hub: with the status 429, the time in which one request more
//     becomes free. While it
//     answers, nothing is held back, because it does not count HEAD requests, and they are how an unmoved tag is seen.
func RetryAfter(resp *http.Response, now time.Time) time.Duration {
	var d time.Duration
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusForbidden, http.StatusServiceUnavailable:
		for _, name := range []string{"Retry-After", "X-Retry-After"} {
			d = max(d, until(resp.Header.Get(name), now))
		}
	}
	if d == 0 {
		for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
			if remaining, ok := number(resp.Header.Get(prefix + "Remaining")); ok && remaining == 0 {
				d = max(d, until(resp.Header.Get(prefix+"Reset"), now))
			}
		}
	}
	if d == 0 && resp.StatusCode == http.StatusTooManyRequests {
		d = max(defaultWait, perRequest(resp.Header.Get("Ratelimit-Limit")))
	}
	return min(d, maxWait)
}

// firstEpoch is the number from which on seconds are meant as a Unix time, as no wait is that long.
const firstEpoch = 1_000_000_000

// until reads a time to wait for: seconds, a Unix time, or an HTTP date.
func until(v string, now time.Time) time.Duration {
	if n, ok := number(v); ok {
		if n >= firstEpoch {
			n = max(n-now.Unix(), 0)
		}
		return time.Duration(min(n, int64(maxWait/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// perRequest reads "LIMIT;w=SECONDS".
func perRequest(v string) time.Duration {
	limit, ok := number(v)
	_, window, found := strings.Cut(v, ";w=")
	seconds, valid := number(window)
	if !ok || !found || !valid || limit == 0 {
		return 0
	}
	return time.Duration(min(seconds, int64(24*time.Hour/time.Second))) * time.Second / time.Duration(limit)
}

// number reads a number that is not negative, up to the parameters that may follow it.
func number(v string) (int64, bool) {
	v, _, _ = strings.Cut(v, ";")
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n, err == nil && n >= 0
}
