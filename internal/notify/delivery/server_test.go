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
	"severity": "info", "timestamp": "2026-11-21T12:00:00Z", "message": "promoted https://me:secret123@example.com/", "reason": "Synced",
	"metadata": {"flagger.app/to": "a"}, "reportingController": "flagger"
}`

func TestWhatOthersPost(t *testing.T) {
	t.Parallel()
	o := newOutside(nil)
	b, _ := start(t, options(t.TempDir(), o))
	server := httptest.NewServer(NewServer(b).Handler)
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
		t.Errorf("the answer is %d %s", code, text)
	}
	eventually(t, "it is delivered", func() bool { return len(o.of("a")) == 1 })
	if got := o.of("a")[0]; got != "promoted https://***@example.com/" {
		t.Errorf("what is told is %q", got)
	}
	code, text, header := call(http.MethodPost, "/", strings.NewReader(posted))
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if code != http.StatusTooManyRequests || err != nil || seconds < 1 || seconds > 300 ||
		!strings.Contains(text, "the same was told") {
		t.Errorf("the answer to a repetition is %d %s %v", code, text, header)
	}
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		says               string
	}{
		"not JSON": {http.MethodPost, "/", "{", http.StatusBadRequest, "not the JSON of an event"},
		"of no object": {http.MethodPost, "/", `{"severity":"info"}`, http.StatusBadRequest,
			"involvedObject.kind is not set"},
		"too large": {http.MethodPost, "/", strings.Repeat(" ", event.MaxSize+1), http.StatusRequestEntityTooLarge,
			"more than"},
		"to be read": {http.MethodGet, "/", "", http.StatusMethodNotAllowed, ""},
		"elsewhere":  {http.MethodPost, "/hook", posted, http.StatusNotFound, ""},
	} {
		if code, text, _ := call(c.method, c.path, strings.NewReader(c.body)); code != c.code ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: the answer is %d %s", name, code, text)
		}
	}
}

// TestWhatIsPostedHasATime: who leaves it out, as the API does not forbid, means now.
func TestWhatIsPostedHasATime(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second) // events have whole seconds
	at := make(chan time.Time, 1)
	b, _ := start(t, options(t.TempDir(), newOutside(func(_ context.Context, d Delivery) error {
		at <- d.Event.Timestamp.Time
		return nil
	})))
	w := httptest.NewRecorder()
	body := strings.Replace(posted, `"timestamp": "2026-11-21T12:00:00Z",`, "", 1)
	NewServer(b).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	if w.Code != http.StatusAccepted {
		t.Fatalf("the answer is %d %s", w.Code, w.Body)
	}
	if got := <-at; got.Before(began) || got.After(time.Now()) {
		t.Errorf("it is of %s", got)
	}
}

func TestABodyOfAnySize(t *testing.T) {
	t.Parallel()
	server := NewServer(New(options(t.TempDir(), newOutside(nil))))
	endless := &endless{}
	w := httptest.NewRecorder()
	server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", endless))
	if w.Code != http.StatusRequestEntityTooLarge || endless.read > 2*event.MaxSize {
		t.Errorf("the answer is %d after %d bytes", w.Code, endless.read)
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

func TestADiskThatDoesNotTakeWhatIsPosted(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	NewServer(New(options("/dev/null", newOutside(nil)))).
		Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(posted)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}
