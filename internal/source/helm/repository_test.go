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

func TestFetchIndexIsConditional(t *testing.T) {
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
		t.Fatalf("an unchanged index was fetched again: %v, %v", again, err)
	}
	if got := s.Requests(); !slices.Equal(got, []string{"GET /index.yaml 304"}) {
		t.Fatalf("requests: %q", got)
	}
	if _, err := os.Stat(first.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the index is still in a named file: %v", err)
	}
}

func TestValidators(t *testing.T) {
	const at, soon, later = "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT",
		"Sat, 21 Nov 2026 10:00:02 GMT"
	for _, test := range []struct {
		etag, modified, date string
		want                 Validators
	}{
		{etag: `"x"`, modified: at, date: later, want: Validators{ETag: `"x"`, LastModified: at}},
		{etag: `"x"`, modified: at, date: soon, want: Validators{ETag: `"x"`}},
		{etag: "", modified: at, date: later, want: Validators{LastModified: at}},
		{etag: "", modified: at, date: at, want: Validators{}}, // it may change again within the second
		{etag: "", modified: at, date: "", want: Validators{}},
		{etag: "", modified: "yesterday", date: later, want: Validators{}},
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
	if c, err := load(t.Context(), data, DefaultLimits); err != nil || c.Metadata.Version != "1.1.0" {
		t.Fatal(c, err)
	}

	wrong := o
	wrong.Digest = "sha256:" + strings.Repeat("0", 64)
	_, err = h.Pull(t.Context(), wrong)
	requireFault(t, err, "ChartPullError", "the index has sha256:000",
		"One of them was changed after it was published. The last artifact stays available")

	h.Limits.Chart = 10
	_, err = h.Pull(t.Context(), o)
	requireFault(t, err, "ChartPullError", "exceeds 10 bytes")

	_, err = h.Find(t.Context(), "app", "2.x")
	requireFault(t, err, "InvalidChartReference", "no version of chart \"app\" matches \"2.x\"",
		"Correct spec.chart or spec.version, or publish the version")
	_, err = h.Find(t.Context(), "other", "*")
	requireFault(t, err, "InvalidChartReference", "chart \"other\" not found",
		"Correct spec.chart or spec.version, or publish the version")

	h.Password = "wrong"
	_, err = h.Pull(t.Context(), o)
	requireFault(t, err, "AuthenticationFailed", "401. Check username and password in the Secret of spec.secretRef")
	_, err = h.FetchIndex(t.Context(), Validators{})
	requireFault(t, err, "AuthenticationFailed", "401")
}

func TestFetchIndexErrors(t *testing.T) {
	s := newChartServer(t)
	h := s.client()
	_, err := h.FetchIndex(t.Context(), Validators{})
	requireFault(t, err, "Failed", "404")

	s.Write("index.yaml", []byte(strings.Repeat("x", 2000)))
	h.Limits.Index = 1000
	_, err = h.FetchIndex(t.Context(), Validators{})
	requireFault(t, err, "IndexationFailed", "exceeds 1000 bytes. Raise --helm-index-max-size, or use a repository "+
		"with fewer charts")

	h = s.client()
	f, err := h.FetchIndex(t.Context(), Validators{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Parse(t.Context(), h.Limits)
	requireFault(t, err, "IndexationFailed", "expected a key of the index. Check that spec.url is the URL of a "+
		"Helm repository")

	for _, bad := range []string{"ftp://h/", "https://", "oci://h/x", "://"} {
		_, err := (&HTTP{URL: bad}).FetchIndex(t.Context(), Validators{})
		requireFault(t, err, "URLInvalid", "Set spec.url to a URL such as https://HOST/PATH, or set spec.type: oci "+
			"for a registry")
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.client().FetchIndex(cancelled, Validators{})
	requireFault(t, err, "IndexationFailed", "canceled")

	secret := s.client()
	secret.URL = strings.Replace(s.URL, "https://", "https://who:s3cret@", 1) + "/?token=s3cret"
	s.Stop()
	_, err = secret.FetchIndex(t.Context(), Validators{})
	requireFault(t, err, "IndexationFailed", "cannot fetch the index")
}

func TestCredentialsAreNotSentToOtherHosts(t *testing.T) {
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
		t.Errorf("credentials for HTTPS are sent over HTTP: %v", err)
	}
}

func TestChartURL(t *testing.T) {
	for _, test := range []struct{ base, chart, want string }{
		{base: "https://h/charts", chart: "app.tgz", want: "https://h/charts/app.tgz"},
		{base: "https://h/charts/", chart: "../app.tgz", want: "https://h/app.tgz"},
		{base: "https://h/charts?token=x", chart: "app.tgz", want: "https://h/charts/app.tgz?token=x"},
		{base: "https://h/charts?token=x", chart: "app.tgz?v=1", want: "https://h/charts/app.tgz?v=1"},
		{base: "https://h/charts", chart: "/app.tgz", want: "https://h/app.tgz"},
		{base: "https://h/charts", chart: "https://other/app.tgz", want: "https://other/app.tgz"},
		{base: "https://h/charts", chart: "file:///etc/passwd", want: ""},
		{base: "https://h/charts", chart: "ftp://h/app.tgz", want: ""},
		{base: "https://h/charts", chart: "://", want: ""},
	} {
		got, err := (&HTTP{URL: test.base}).chartURL(test.chart)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s in %s: %q, %v; want %q", test.chart, test.base, got, err, test.want)
		}
	}
}

func TestIndexesAreCached(t *testing.T) {
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
	get("large", maxIndexes+1) // exceeds the limit, and is cached alone
	get("large", maxIndexes+1)
	get("a", 10)
	if reads != 3 || c.kept.Len() != 1 {
		t.Fatalf("read %d times, %d in the cache", reads, c.kept.Len())
	}
	get("b", 10)
	get("a", 10)
	get("c", maxIndexes-15) // evicts b, which was not used for the longest time
	get("a", 10)
	if reads != 5 || c.kept.Len() != 2 {
		t.Fatalf("read %d times, %d in the cache", reads, c.kept.Len())
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
