package delivery

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const posted = `{
	"involvedObject": {"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "namespace": "apps", "name": "web"},
	"severity": "info", "timestamp": "2026-11-21T12:00:00Z", "message": "promoted https://me:secret123@example.com/",
	"reason": "Synced",
	"metadata": {"flagger.app/to": "a"}, "reportingController": "flagger"
}`

func TestPostedEventIsDelivered(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(nil)
	d, _ := start(t, options(t.TempDir(), o))
	server := httptest.NewServer(NewServer(d).Handler)
	t.Cleanup(server.Close)
	call := func(method, path string, body io.Reader) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text), resp.Header
	}
	if code, text, _ := call(http.MethodPost, "/", strings.NewReader(posted)); code != http.StatusAccepted ||
		text != "" {
		t.Errorf("status %d, body %q", code, text)
	}
	eventually(t, "the event is delivered", func() bool { return len(o.received("a")) == 1 })
	if got := o.received("a")[0]; got != "promoted https://***@example.com/" {
		t.Errorf("delivered message is %q", got)
	}
	code, text, header := call(http.MethodPost, "/", strings.NewReader(posted))
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if code != http.StatusTooManyRequests || err != nil || seconds < 1 || seconds > 300 ||
		!strings.Contains(text, "duplicate event, suppressed") {
		t.Errorf("duplicate event: status %d, body %q, header %v", code, text, header)
	}
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		want               string // in the body
	}{
		"malformed JSON": {method: http.MethodPost, path: "/", body: "{", code: http.StatusBadRequest,
			want: "not a JSON event"},
		"no object": {method: http.MethodPost, path: "/", body: `{"severity":"info"}`, code: http.StatusBadRequest,
			want: "involvedObject.kind is not set"},
		"too large": {method: http.MethodPost, path: "/", body: strings.Repeat(" ", event.MaxSize+1),
			code: http.StatusRequestEntityTooLarge, want: "more than"},
		"GET":        {method: http.MethodGet, path: "/", code: http.StatusMethodNotAllowed},
		"other path": {method: http.MethodPost, path: "/hook", body: posted, code: http.StatusNotFound},
	} {
		if code, text, _ := call(c.method, c.path, strings.NewReader(c.body)); code != c.code ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: status %d, body %q, want %d, %q", name, code, text, c.code, c.want)
		}
	}
}

// TestPostedEventWithoutTimestamp checks that the current time is used.
func TestPostedEventWithoutTimestamp(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second) // timestamps are in whole seconds
	at := make(chan time.Time, 1)
	d, _ := start(t, options(t.TempDir(), newFakeProviders(func(_ context.Context, delivery Delivery) error {
		at <- delivery.Event.Timestamp.Time
		return nil
	})))
	w := httptest.NewRecorder()
	body := strings.Replace(posted, `"timestamp": "2026-11-21T12:00:00Z",`, "", 1)
	NewServer(d).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	if w.Code != http.StatusAccepted {
		t.Fatalf("status %d, body %q", w.Code, w.Body)
	}
	if got := <-at; got.Before(began) || got.After(time.Now()) {
		t.Errorf("timestamp is %s", got)
	}
}

func TestEndlessBodyIsRejected(t *testing.T) {
	t.Parallel()
	server := NewServer(New(options(t.TempDir(), newFakeProviders(nil))))
	endless := &endless{}
	w := httptest.NewRecorder()
	server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", endless))
	if w.Code != http.StatusRequestEntityTooLarge || endless.read > 2*event.MaxSize {
		t.Errorf("status %d after %d bytes", w.Code, endless.read)
	}
}

// endless is a body that does not end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func TestPostWithoutWritableStorage(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	NewServer(New(options("/dev/null", newFakeProviders(nil)))).
		Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(posted)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, body %q", w.Code, w.Body)
	}
}
