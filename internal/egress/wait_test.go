package egress

import (
	"net/http"
	"net/url"
	"strconv"
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
		"seconds": {429, []string{"Retry-After", "120"}, 2 * time.Minute},
		"date": {503,
			[]string{"Retry-After", noon.Add(90 * time.Second).Format(http.TimeFormat)}, 90 * time.Second},
		"date in the past": {503,
			[]string{"Retry-After", noon.Add(-time.Hour).Format(http.TimeFormat)}, 0},
		"GitHub's secondary limit": {403, []string{"Retry-After", "60", "X-Ratelimit-Remaining", "100"},
			time.Minute},
		"GitHub's primary limit": {403,
			[]string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", unix(20 * time.Minute)}, 20 * time.Minute},
		"GitHub's last request": {200,
			[]string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", unix(time.Minute)}, time.Minute},
		"GitHub with requests left": {200,
			[]string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Reset", unix(time.Minute)}, 0},
		"GitLab's limit": {429,
			[]string{"Ratelimit-Remaining", "0", "Ratelimit-Reset", unix(30 * time.Second)}, 30 * time.Second},
		"seconds as the draft standard": {429, []string{"Ratelimit-Remaining", "0", "Ratelimit-Reset", "30"},
			30 * time.Second},
		"Docker Hub without limit": {200,
			[]string{"Ratelimit-Limit", "100;w=21600", "Ratelimit-Remaining", "0;w=21600"}, 0},
		"Docker Hub's limit": {429,
			[]string{"Ratelimit-Limit", "100;w=21600", "Ratelimit-Remaining", "0;w=21600"}, 216 * time.Second},
		"Docker Hub's abuse limit":    {429, []string{"X-Retry-After", unix(5 * time.Minute)}, 5 * time.Minute},
		"status 429 without time":     {429, nil, time.Minute},
		"status 503 without time":     {503, nil, 0},
		"status 403 without time":     {403, nil, 0},
		"status 200":                  {200, []string{"Retry-After", "60"}, 0},
		"status 301":                  {301, []string{"Retry-After", "60"}, 0},
		"longer than an hour":         {429, []string{"Retry-After", "999999"}, time.Hour},
		"number too large":            {429, []string{"Retry-After", "99999999999999999999"}, time.Minute},
		"negative number":             {429, []string{"Retry-After", "-5"}, time.Minute},
		"Unix time in the far future": {503, []string{"Retry-After", "9223372036854775807"}, time.Hour},
		"not a number":                {429, []string{"Retry-After", "soon"}, time.Minute},
		"limit and window of zero":    {429, []string{"Ratelimit-Limit", "0;w=0"}, time.Minute},
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
		again, err := url.Parse(u.Scheme + "://" + hostPort(u))
		if err == nil && hostPort(again) != hostPort(u) {
			t.Errorf("%q: hostPort returns %q, and %q for its result", raw, hostPort(u), hostPort(again))
		}
	})
}
