package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestHugeRequestsAreRefused(t *testing.T) {
	s := newSite(t, everyone)
	words, kinds := strings.Repeat("a+", maxWords+1), strings.Repeat("&kind=Gate", maxWords+1)
	for path, want := range map[string]int{
		"/api/v1/items?q=" + words:                                 http.StatusBadRequest,
		"/api/v1/items?" + kinds:                                   http.StatusBadRequest,
		"/api/v1/items?q=" + strings.Repeat("a", maxQuery):         http.StatusRequestURITooLong,
		"/api/v1/changes?after=x":                                  http.StatusBadRequest,
		"/api/v1/changes?limit=100000":                             http.StatusBadRequest,
		"/api/v1/why?q=" + strings.Repeat("%23", 300) + "42":       http.StatusOK,
		"/api/v1/why?q=Deployment/" + s.namespace + "/unknown":     http.StatusOK,
		"/api/v1/why?q=registry.example/unknown:1.0.0%22%3Cscript": http.StatusOK,
	} {
		if status, body := s.request(http.MethodGet, path, ""); status != want || strings.Contains(body, "goroutine") {
			t.Errorf("%.60s: %d %s, want %d", path, status, body, want)
		}
	}
}

func TestRequestsOfOneUserAreBounded(t *testing.T) {
	s := newSite(t, everyone)
	server := s.ui
	for range maxUserRequests {
		if !server.requests.Open("admin", maxRequests, maxUserRequests) {
			t.Fatal("a request within the limit is refused")
		}
	}
	if status, _ := s.request(http.MethodGet, "/api/v1/me", ""); status != http.StatusTooManyRequests {
		t.Errorf("a request above the limit got %d", status)
	}
	if !server.requests.Open("other", maxRequests, maxUserRequests) {
		t.Error("the requests of one user keep out another")
	}
	server.requests.Close("admin")
	if status, _ := s.request(http.MethodGet, "/api/v1/me", ""); status != http.StatusOK {
		t.Errorf("a request after another ended got %d", status)
	}
}

// openStream opens a stream at a server whose time for a request is so short that a slow machine may miss it.
func (s *site) openStream(url string) *http.Response {
	s.Helper()
	var stream *http.Response
	testenv.Eventually(s, "a stream", func() error {
		r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, url+"/api/v1/stream", nil)
		if err != nil {
			s.Fatal(err)
		}
		r.AddCookie(&http.Cookie{Name: localCookie, Value: s.login.token})
		if stream, err = http.DefaultClient.Do(r); err != nil {
			return err
		}
		if _, err := stream.Body.Read(make([]byte, 4096)); err != nil { // the event hello
			return errors.Join(err, stream.Body.Close())
		}
		return nil
	})
	return stream
}

// TestClientsThatSendNothingAreCutOff has a client that never completes the body of a request: it ends, and a stream
// that is open for longer goes on.
func TestClientsThatSendNothingAreCutOff(t *testing.T) {
	s := newSite(t, everyone)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.ui.server(t.Context(), listener.Addr().String())
	if server.ReadTimeout <= 0 || server.WriteTimeout <= requestTimeout {
		t.Errorf("the deadlines are %s and %s", server.ReadTimeout, server.WriteTimeout)
	}
	server.ReadTimeout, server.WriteTimeout = 100*time.Millisecond, 200*time.Millisecond
	guard.Go("a server", func() { _ = server.Serve(listener) })
	t.Cleanup(func() { _ = server.Close() })
	stream := s.openStream("http://" + listener.Addr().String())
	defer stream.Body.Close()
	for range 3 {
		slow, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(slow, "POST /api/v1/releases HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\n%s: %s\r\n"+
			"Content-Length: 60000\r\n\r\n{", listener.Addr(), localCookie, s.login.token, csrfHeader,
			s.login.user.CSRF)
		if err := slow.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, slow); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection whose request does not end is open after a minute")
		}
		_ = slow.Close()
	}
	s.create(kustomization("later"))
	got := ""
	for b := make([]byte, 4096); !strings.Contains(got, "/later"); {
		n, err := stream.Body.Read(b)
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		got += string(b[:n])
	}
}

func TestCostlyAnswersTakeTurns(t *testing.T) {
	var all turns
	var done []func()
	for range maxHeavy {
		end, err := all.take(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, end)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxUserHeavy)
	for range maxUserHeavy - maxHeavy {
		guard.Go("a turn", func() { _, err := all.take(ctx, "ada"); ended <- err })
	}
	cancel()
	for range maxUserHeavy - maxHeavy {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a request above the limit got a turn (%v)", err)
		}
	}
	for range maxUserHeavy - maxHeavy {
		all.users.Open("ada", maxRequests, maxUserHeavy)
	}
	if _, err := all.take(t.Context(), "ada"); !errors.Is(err, errTooMany) {
		t.Errorf("a user has more turns than allowed (%v)", err)
	}
	done[0]()
	if end, err := all.take(t.Context(), "bob"); err != nil {
		t.Errorf("the turn that ended is not free: %v", err)
	} else {
		end()
	}
}
