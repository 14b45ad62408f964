package egress

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxWait     = time.Hour   // longer waits are cut to it
	defaultWait = time.Minute // after a status 429 without a time, as GitHub documents
)

// RetryAfter returns how long the host of an answer asks the client to wait; zero if it does not. It reads:
//
//   - Retry-After with the statuses 429, 403 and 503 (RFC 9110, 10.2.3), and Docker Hub's X-Retry-After
//   - X-RateLimit-Remaining and X-RateLimit-Reset of GitHub, RateLimit-Remaining and RateLimit-Reset of
//     GitLab, if no request remains
//   - RateLimit-Limit "100;w=21600" of Docker Hub with the status 429: the time in which one more request becomes
//     free. With other statuses it is ignored: HEAD requests, which detect unmoved tags, do not count for this limit.
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

// firstEpoch is the least number that is read as a Unix time and not as a number of seconds.
const firstEpoch = 1_000_000_000

// until parses the end of a wait: a number of seconds, a Unix time, or an HTTP date.
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

// perRequest parses "LIMIT;w=SECONDS" and returns the time per request.
func perRequest(v string) time.Duration {
	limit, ok := number(v)
	_, window, found := strings.Cut(v, ";w=")
	seconds, valid := number(window)
	if !ok || !found || !valid || limit == 0 {
		return 0
	}
	return time.Duration(min(seconds, int64(24*time.Hour/time.Second))) * time.Second / time.Duration(limit)
}

// number parses a number that is not negative. Parameters may follow it.
func number(v string) (int64, bool) {
	v, _, _ = strings.Cut(v, ";")
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n, err == nil && n >= 0
}
