package egress

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	unix := func(d time.Duration) string { return strconv.FormatInt(noon.Add(d).Unix(), 10) }
	for name, c := range map[string]struct {
		status int
		header []string
		want   time.Duration
	}{
		"seconds": {status: 429, header: []string{"Retry-After", "120"}, want: 2 * time.Minute},
		"date": {status: 503,
			header: []string{"Retry-After", noon.Add(90 * time.Second).Format(http.TimeFormat)},
			want:   90 * time.Second},
		"date in the past": {status: 503,
			header: []string{"Retry-After", noon.Add(-time.Hour).Format(http.TimeFormat)}, want: 0},
		"GitHub's secondary limit": {status: 403, header: []string{"Retry-After", "60", "X-Ratelimit-Remaining", "100"},
			want: time.Minute},
		"GitHub's primary limit": {status: 403,
			header: []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", unix(20 * time.Minute)},
			want:   20 * time.Minute},
		"GitHub's last request": {status: 200,
			header: []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", unix(time.Minute)}, want: time.Minute},
		"GitHub with requests left": {status: 200,
			header: []string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Reset", unix(time.Minute)}, want: 0},
		"GitLab's limit": {status: 429,
			header: []string{"Ratelimit-Remaining", "0", "Ratelimit-Reset", unix(30 * time.Second)},
			want:   30 * time.Second},
		"seconds as the draft standard": {status: 429,
			header: []string{"Ratelimit-Remaining", "0", "Ratelimit-Reset", "30"},
			want:   30 * time.Second},
		"Docker Hub without limit": {status: 200,
			header: []string{"Ratelimit-Limit", "100;w=21600", "Ratelimit-Remaining", "0;w=21600"}, want: 0},
		"Docker Hub's limit": {status: 429,
			header: []string{"Ratelimit-Limit", "100;w=21600", "Ratelimit-Remaining", "0;w=21600"},
			want:   216 * time.Second},
		"Docker Hub's abuse limit": {status: 429, header: []string{"X-Retry-After", unix(5 * time.Minute)},
			want: 5 * time.Minute},
		"status 429 without time": {status: 429, want: time.Minute},
		"status 503 without time": {status: 503, want: 0},
		"status 403 without time": {status: 403, want: 0},
		"status 200":              {status: 200, header: []string{"Retry-After", "60"}, want: 0},
		"status 301":              {status: 301, header: []string{"Retry-After", "60"}, want: 0},
		"longer than an hour":     {status: 429, header: []string{"Retry-After", "999999"}, want: time.Hour},
		"number too large": {status: 429, header: []string{"Retry-After", "99999999999999999999"},
			want: time.Minute},
		"negative number": {status: 429, header: []string{"Retry-After", "-5"}, want: time.Minute},
		"Unix time in the far future": {status: 503, header: []string{"Retry-After", "9223372036854775807"},
			want: time.Hour},
		"not a number":             {status: 429, header: []string{"Retry-After", "soon"}, want: time.Minute},
		"limit and window of zero": {status: 429, header: []string{"Ratelimit-Limit", "0;w=0"}, want: time.Minute},
	} {
		header := http.Header{}
		for i := 0; i < len(c.header); i += 2 {
			header.Set(c.header[i], c.header[i+1])
		}
		if got := RetryAfter(&http.Response{StatusCode: c.status, Header: header}, noon); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add(429, "120", "0;w=21600", "1795262400", "100;w=21600")
	f.Add(503, "Sat, 21 Nov 2026 12:01:00 GMT", "0", "30", "")
	f.Add(403, "-1", "", "99999999999999999999", ";w=;w=")
	f.Fuzz(func(t *testing.T, status int, after, remaining, reset, limit string) {
		header := http.Header{}
		for name, v := range map[string]string{"Retry-After": after, "X-Retry-After": reset,
			"X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset,
			"Ratelimit-Remaining": remaining, "Ratelimit-Reset": after, "Ratelimit-Limit": limit} {
			header.Set(name, v)
		}
		if got := RetryAfter(&http.Response{StatusCode: status, Header: header}, noon); got < 0 || got > maxWait {
			t.Errorf("RetryAfter is %s", got)
		}
	})
}

func FuzzHostPort(f *testing.F) {
	for _, raw := range []string{"https://Host:443/x", "http://[fe80::1%25eth0]:8080", "https://user:pw@host",
		"//host:80", "https://host:0443", "https://host."} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" {
			return
		}
		if !sameOrigin(u, u) {
			t.Errorf("%q does not have the same origin as itself", raw)
		}
		if strings.Contains(u.Hostname(), "%") {
			return // a zone, which a URL escapes
		}
		again, err := url.Parse(u.Scheme + "://" + hostPort(u))
		if err == nil && hostPort(again) != hostPort(u) {
			t.Errorf("%q: hostPort returns %q, and %q for its result", raw, hostPort(u), hostPort(again))
		}
	})
}
