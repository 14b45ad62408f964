package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
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
	server := httptest.NewServer(NewServer(d, nil, 0).Handler)
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
	NewServer(d, nil, 0).Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	if w.Code != http.StatusAccepted {
		t.Fatalf("status %d, body %q", w.Code, w.Body)
	}
	if got := <-at; got.Before(began) || got.After(time.Now()) {
		t.Errorf("timestamp is %s", got)
	}
}

func TestEndlessBodyIsRejected(t *testing.T) {
	t.Parallel()
	server := NewServer(New(options(t.TempDir(), newFakeProviders(nil))), nil, 0)
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
	NewServer(New(options("/dev/null", newFakeProviders(nil))), nil, 0).
		Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(posted)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, body %q", w.Code, w.Body)
	}
}

// TestFloodOfOneSender checks that a sender above its quota must wait, and that others are not affected.
func TestFloodOfOneSender(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir(), newFakeProviders(nil))
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	o.Clock = testingclock.NewFakeClock(now)
	const allowed = 5 * quotaBurst
	server := NewServer(New(o), nil, 5)
	send := func(address string, n int) *httptest.ResponseRecorder {
		body := strings.Replace(posted, `"name": "web"`, fmt.Sprintf(`"name": "web-%d"`, n), 1)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		return w
	}
	for n := range allowed {
		if w := send("10.0.0.1:1000", n); w.Code != http.StatusAccepted {
			t.Fatalf("event %d: status %d, body %q", n, w.Code, w.Body)
		}
	}
	w := send("10.0.0.1:2000", allowed)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(w.Body.String(), "too many events of this sender") {
		t.Errorf("above the quota: status %d, header %v, body %q", w.Code, w.Header(), w.Body)
	}
	if w := send("10.0.0.2:1000", allowed); w.Code != http.StatusAccepted {
		t.Errorf("another sender: status %d, body %q", w.Code, w.Body)
	}
}

// TestSlowRequestsOfOneAddress has an address whose requests never end, before they are authenticated.
func TestSlowRequestsOfOneAddress(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir(), newFakeProviders(nil))
	server := NewServer(New(o), nil, 0)
	send := func(address string, body io.Reader) int {
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		return w.Code
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	refused := make(chan int, 2*maxRequests)
	for n := range 2 * maxRequests {
		body, hold := io.Pipe()
		defer hold.Close()
		ends.Go(func() {
			if code := send(fmt.Sprintf("[2001:db8::1]:%d", 1000+n), body); code == http.StatusServiceUnavailable {
				refused <- code
			}
		})
	}
	for range 2*maxRequests - maxRequests/2 {
		select {
		case <-refused:
		case <-time.After(3 * time.Minute):
			t.Fatal("one address has more than its share of the slots")
		}
	}
	if code := send("10.0.0.2:1000", strings.NewReader(posted)); code != http.StatusAccepted {
		t.Errorf("another address: status %d", code)
	}
}

// TestPostedEventsDoNotDisplaceOwnEvents checks that a flood of posted events neither drops the events of this process
// nor suppresses them as duplicates.
func TestPostedEventsDoNotDisplaceOwnEvents(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(nil)
	opts := options(t.TempDir(), o)
	opts.Limits = queue.Limits{Bytes: 20 << 10, Segment: 2 << 10}
	d := New(opts) // not started: nothing leaves the intakes
	post(t, d, newEvent("own", "first", "a"))
	for i := range 400 {
		if err := d.PostForeign(newEvent("posted", fmt.Sprint(i), "a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.PostForeign(newEvent("own", "second", "a")); err != nil {
		t.Fatal(err)
	}
	post(t, d, newEvent("own", "second", "a"))
	run(t, d)
	eventually(t, "the events of this process are delivered", func() bool {
		got := o.received("a")
		return slices.Contains(got, "first") && slices.Contains(got, "second")
	})
}

// TestPostedEventsLeaveRoomInProviderQueue checks that posted events for a provider that is down leave half of its
// queue to the events of this process.
func TestPostedEventsLeaveRoomInProviderQueue(t *testing.T) {
	t.Parallel()
	o := newFakeProviders(func(context.Context, Delivery) error { return errors.New("down") })
	opts := options(t.TempDir(), o)
	opts.Limits = queue.Limits{Bytes: 40 << 10, Segment: 2 << 10}
	d, stop := start(t, opts)
	post(t, d, newEvent("own", "first", "a"))
	for i := range 400 {
		if err := d.PostForeign(newEvent("posted", fmt.Sprint(i), "a")); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 { // the intake has the same limit
			eventually(t, "the intake is empty", func() bool {
				intake, err := d.posted.queue.open()
				return err == nil && intake.Len() == 0
			})
		}
	}
	stop()
	o.respond = nil
	start(t, opts)
	eventually(t, "the event of this process is delivered", func() bool {
		return slices.Contains(o.received("a"), "first")
	})
}
