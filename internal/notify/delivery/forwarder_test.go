package delivery

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestForwarderResponses(t *testing.T) {
	t.Parallel()
	var code int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
	}))
	t.Cleanup(server.Close)
	forwarder := &Forwarder{URL: server.URL + "/secret-path", Client: server.Client()}
	d := forwarder.Route(t.Context(), newEvent("app", "text", ""))[0]
	for _, c := range []struct {
		code            int
		fails, terminal bool
		wait            time.Duration
	}{
		{code: http.StatusAccepted},
		{code: http.StatusOK},
		{code: http.StatusTooManyRequests}, // a duplicate: the other process has the event
		{code: http.StatusBadRequest, fails: true, terminal: true},
		{code: http.StatusRequestEntityTooLarge, fails: true, terminal: true},
		{code: http.StatusNotFound, fails: true, wait: 7 * time.Second},
		{code: http.StatusServiceUnavailable, fails: true, wait: 7 * time.Second},
	} {
		code = c.code
		err := forwarder.Send(t.Context(), d)
		switch f := fault.As(err); {
		case (err != nil) != c.fails:
			t.Errorf("%d: unexpected error %v", c.code, err)
		case err != nil && (f.Terminal != c.terminal || f.RetryAfter != c.wait):
			t.Errorf("%d: Terminal = %v, RetryAfter = %s", c.code, f.Terminal, f.RetryAfter)
		}
	}
	server.Close()
	if err := forwarder.Send(t.Context(), d); err == nil || fault.As(err).Terminal ||
		strings.Contains(err.Error(), "secret-path") {
		t.Errorf("unreachable server: unexpected error %v", err)
	}
}
