package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestUnchangedIndexCostsOneConditionalRequest(t *testing.T) {
	s := newChartServer(t)
	s.Publish(newChart("app", "1.0.0"))
	h := s.client()
	first, err := h.FetchIndex(t.Context(), Validators{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	s.Requests()
	again, err := h.FetchIndex(t.Context(), first.Validators)
	if err != nil || again != nil {
		t.Fatalf("an unchanged index was fetched: %v, %v", again, err)
	}
	if got := s.Requests(); !slices.Equal(got, []string{"GET /index.yaml 304"}) {
		t.Fatalf("requests: %q", got)
	}
	if _, err := os.Stat(first.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spooled index still has a name: %v", err)
	}
}

func TestValidators(t *testing.T) {
	const at, soon, later = "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT",
		"Sat, 21 Nov 2026 10:00:02 GMT"
	for _, test := range []struct {
		etag, modified, date string
		want                 Validators
	}{
		{`"x"`, at, later, Validators{`"x"`, at}},
		{`"x"`, at, soon, Validators{ETag: `"x"`}},
		{"", at, later, Validators{LastModified: at}},
		{"", at, at, Validators{}}, // it may change again in that second
		{"", at, "", Validators{}},
		{"", "yesterday", later, Validators{}},
	} {
		got := validators(&http.Response{Header: http.Header{"Etag": {test.etag}, "Last-Modified": {test.modified},
			"Date": {test.date}}})
		if got != test.want {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

func TestPull(t *testing.T) {
	s := newChartServer(t)
	s.Publish(newChart("app", "1.0.0"), newChart("app", "1.1.0"))
	h := s.indexed(t)
	o, err := h.Find(t.Context(), "app", "1.x")
	if err != nil || o.Version != "1.1.0" || o.URL != s.URL+"/app-1.1.0.tgz" {
		t.Fatal(o, err)
	}
	data, err := h.Pull(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := load(data, DefaultLimits); err != nil || c.Metadata.Version != "1.1.0" {
		t.Fatal(c, err)
	}

	wrong := o
	wrong.Digest = "sha256:" + strings.Repeat("0", 64)
	_, err = h.Pull(t.Context(), wrong)
	wants(t, err, "ChartPullError", "the index says sha256:000")

	h.Limits.Chart = 10
	_, err = h.Pull(t.Context(), o)
	wants(t, err, "ChartPullError", "more than 10 bytes")

	_, err = h.Find(t.Context(), "app", "2.x")
	wants(t, err, "InvalidChartReference", "no version of chart \"app\" matches \"2.x\"")
	_, err = h.Find(t.Context(), "other", "*")
	wants(t, err, "InvalidChartReference", "no chart \"other\"")

	h.Password = "wrong"
	_, err = h.Pull(t.Context(), o)
	wants(t, err, "AuthenticationFailed", "401")
	_, err = h.FetchIndex(t.Context(), Validators{})
	wants(t, err, "AuthenticationFailed", "401")
}

func TestFetchIndexFails(t *testing.T) {
	s := newChartServer(t)
	h := s.client()
	_, err := h.FetchIndex(t.Context(), Validators{})
	wants(t, err, "IndexationFailed", "404")

	s.Write("index.yaml", []byte(strings.Repeat("x", 2000)))
	h.Limits.Index = 1000
	_, err = h.FetchIndex(t.Context(), Validators{})
	wants(t, err, "IndexationFailed", "more than 1000 bytes")

	h = s.client()
	f, err := h.FetchIndex(t.Context(), Validators{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Parse(h.Limits)
	wants(t, err, "IndexationFailed", "not a key")

	for _, bad := range []string{"ftp://h/", "https://", "oci://h/x", "://"} {
		_, err := (&HTTP{URL: bad}).FetchIndex(t.Context(), Validators{})
		wants(t, err, "URLInvalid")
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.client().FetchIndex(cancelled, Validators{})
	wants(t, err, "IndexationFailed", "canceled")

	secret := s.client()
	secret.URL = strings.Replace(s.URL, "https://", "https://who:s3cret@", 1) + "/?token=s3cret"
	s.Stop()
	_, err = secret.FetchIndex(t.Context(), Validators{})
	wants(t, err, "IndexationFailed", "cannot fetch the index")
}

// TestCredentialsStayHome follows charts of an index to another host.
func TestCredentialsStayHome(t *testing.T) {
	var mu sync.Mutex
	var logins []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		u, p, _ := r.BasicAuth()
		logins = append(logins, u+":"+p)
		fmt.Fprint(w, "chart")
	}))
	defer other.Close()
	s := newChartServer(t)
	s.Write("index.yaml", []byte("apiVersion: v1\nentries:\n  app:\n  - {version: 1.0.0, urls: ["+other.URL+
		"/app.tgz]}\n"))
	h := s.indexed(t)
	for _, pass := range []bool{false, true} {
		h.PassCredentials = pass
		o, err := h.Find(t.Context(), "app", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Pull(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(logins, []string{":", user + ":" + password}) {
		t.Fatalf("logins: %q", logins)
	}
	plain, err := url.Parse(strings.Replace(s.URL, "https", "http", 1))
	if err != nil || h.sameHost(plain) {
		t.Errorf("credentials for https go over http: %v", err)
	}
}

func TestChartURL(t *testing.T) {
	for _, test := range []struct{ base, chart, want string }{
		{"https://h/charts", "app.tgz", "https://h/charts/app.tgz"},
		{"https://h/charts/", "../app.tgz", "https://h/app.tgz"},
		{"https://h/charts?token=x", "app.tgz", "https://h/charts/app.tgz?token=x"},
		{"https://h/charts?token=x", "app.tgz?v=1", "https://h/charts/app.tgz?v=1"},
		{"https://h/charts", "/app.tgz", "https://h/app.tgz"},
		{"https://h/charts", "https://other/app.tgz", "https://other/app.tgz"},
		{"https://h/charts", "file:///etc/passwd", ""},
		{"https://h/charts", "ftp://h/app.tgz", ""},
		{"https://h/charts", "://", ""},
	} {
		got, err := (&HTTP{URL: test.base}).chartURL(test.chart)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s in %s: %q, %v; want %q", test.chart, test.base, got, err, test.want)
		}
	}
}

func TestIndexesShareAndForget(t *testing.T) {
	var c Indexes
	reads := 0
	get := func(digest string, weight int64) {
		t.Helper()
		if _, err := c.Get(t.Context(), digest,
			func() (*Index, error) { reads++; return &Index{weight: weight}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	get("a", 10)
	get("a", 10)
	if reads != 1 {
		t.Fatalf("read %d times", reads)
	}
	get("large", maxIndexes+1) // alone over the bound, and kept: it is in use
	get("large", maxIndexes+1)
	get("a", 10)
	if reads != 3 || c.kept.Len() != 1 {
		t.Fatalf("read %d times, %d kept", reads, c.kept.Len())
	}
	get("b", 10)
	get("a", 10)
	get("c", maxIndexes-15) // b was not asked for longest
	get("a", 10)
	if reads != 5 || c.kept.Len() != 2 {
		t.Fatalf("read %d times, %d kept", reads, c.kept.Len())
	}
	if _, err := c.Get(t.Context(), "bad", func() (*Index, error) { return nil, io.ErrUnexpectedEOF }); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	get("bad", 1)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	release := make(chan struct{})
	defer close(release)
	if _, err := c.Get(cancelled, "slow", func() (*Index, error) { <-release; return &Index{}, nil }); !errors.Is(err,
		context.Canceled) {
		t.Fatal(err)
	}
}
