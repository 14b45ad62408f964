package delivery

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestWhatAnAnswerToAForwardedEventMeans(t *testing.T) {
	t.Parallel()
	var code int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
	}))
	t.Cleanup(server.Close)
	f := &Forward{URL: server.URL + "/secret-path", Client: server.Client()}
	d := f.Route(t.Context(), about1("app", "text", ""))[0]
	for _, c := range []struct {
		code            int
		fails, terminal bool
		wait            time.Duration
	}{
		{http.StatusAccepted, false, false, 0},
		{http.StatusOK, false, false, 0},
		{http.StatusTooManyRequests, false, false, 0}, // it is known there
		{http.StatusBadRequest, true, true, 0},
		{http.StatusRequestEntityTooLarge, true, true, 0},
		{http.StatusNotFound, true, false, 7 * time.Second},
		{http.StatusServiceUnavailable, true, false, 7 * time.Second},
	} {
		code = c.code
		err := f.Send(t.Context(), d)
		switch said := fault.As(err); {
		case (err != nil) != c.fails:
			t.Errorf("%d: the error is %v", c.code, err)
		case err != nil && (said.Terminal != c.terminal || said.RetryAfter != c.wait):
			t.Errorf("%d: terminal is %v, the wait %s", c.code, said.Terminal, said.RetryAfter)
		}
	}
	server.Close()
	if err := f.Send(t.Context(), d); err == nil || fault.As(err).Terminal ||
		strings.Contains(err.Error(), "secret-path") {
		t.Errorf("nobody listens: %v", err)
	}
}
