package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/hostguard"
)

func TestBodiesThatStopSending(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		begin := "begin"
		if r.URL.Path == "/slow" {
			begin = strings.Repeat("x", 100)
		}
		_, _ = io.WriteString(w, begin)
		_ = http.NewResponseController(w).Flush()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
			switch r.URL.Path {
			case "/drip": // 10 bytes in the time for 30
				_, _ = io.WriteString(w, ".")
			case "/slow":
				_, _ = io.WriteString(w, strings.Repeat("x", 100))
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
	short, shortDrip := longTimeouts, longTimeouts
	short.Idle, short.Drip = 500*time.Millisecond, 500*time.Millisecond
	shortDrip.Drip = 200 * time.Millisecond
	for _, path := range []string{"/hang", "/drip"} {
		_, content, err := get(t, client(t, &Policy{Timeouts: short}, Options{}), s.URL+path)
		mustFail(t, err, "stopped sending. Check the host, and the network path to it")
		if !strings.HasPrefix(content, "begin") {
			t.Errorf("%s: the first bytes are lost: %q", path, content)
		}
	}
	c := client(t, &Policy{Timeouts: shortDrip}, Options{})
	resp, err := c.Get(s.URL + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if n, err := io.CopyN(io.Discard, resp.Body, 2000); err != nil { // takes five times Timeouts.Drip
		t.Errorf("a slow body ends after %d bytes: %v", n, err)
	}
}

// serveRaw answers each connection with the same bytes, closes it, and returns its address.
func serveRaw(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestMalformedAnswers(t *testing.T) {
	t.Parallel()
	c := client(t, &Policy{}, Options{})
	for name, test := range map[string]struct{ answer, want string }{
		"empty":           {answer: "", want: "interrupted"},
		"half a body":     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", want: "interrupted"},
		"not HTTP":        {answer: "SSH-2.0-OpenSSH_9.9\r\n", want: "failed"},
		"header of 1 MiB": {answer: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", want: "failed"},
	} {
		host := serveRaw(t, test.answer)
		_, _, err := get(t, c, "http://me:secret@"+host+"/?sig=secret")
		if f := faultOf(t, err, host, test.want); strings.Contains(f.Error(), "secret") || len(f.Error()) > 500 {
			t.Errorf("%s: got error %q", name, f.Error())
		}
	}
}

func TestUnreachableHosts(t *testing.T) {
	t.Parallel()
	_, _, err := get(t, client(t, &Policy{}, Options{}), "http://127.0.0.1:1/")
	mustFail(t, err, "connection refused. Check that the server is running, and the port of the URL")
	for want, lookup := range map[string]net.DNSError{
		"DNS has no record of 'host.invalid'. Check the URL and the cluster's DNS": {
			Name: "host.invalid", IsNotFound: true},
		"DNS lookup of 'host.invalid' failed. Check the cluster's DNS": {
			Name: "host.invalid", IsTimeout: true},
	} {
		mustFail(t, explain(t.Context(), &net.OpError{Op: "dial", Err: &lookup},
			hostguard.Route{Host: "host.invalid"}), want)
	}
}

func TestAnswersWithoutBodyHoldNoSlot(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(map[string]int{http.MethodHead: 5}[r.Method]))
	})
	p := &Policy{PerHost: 1}
	c := client(t, p, Options{})
	for _, method := range []string{http.MethodHead, http.MethodGet, http.MethodHead} {
		req, err := http.NewRequestWithContext(within(t), method, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(req); err != nil { //nolint:bodyclose // closing it must not be necessary
			t.Fatal(err)
		}
	}
	if p.Guard().InFlight(routeTo(s)) > 0 {
		t.Error("a slot is not released")
	}
}
