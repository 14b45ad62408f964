package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestBodiesThatNeverEnd(t *testing.T) {
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
			case "/drip": // 10 bytes in the time in which 30 are due
				_, _ = io.WriteString(w, ".")
			case "/slow":
				_, _ = io.WriteString(w, strings.Repeat("x", 100))
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
	impatient, bearing := patient, patient
	impatient.Idle, impatient.Drip = 500*time.Millisecond, 500*time.Millisecond
	bearing.Drip = 200 * time.Millisecond
	for _, path := range []string{"/hang", "/drip"} {
		_, content, err := get(t, client(t, &Policy{Timeouts: impatient}, Options{}), s.URL+path)
		mustFail(t, err, "stopped sending")
		if !strings.HasPrefix(content, "begin") {
			t.Errorf("%s: what came before is lost: %q", path, content)
		}
	}
	c := client(t, &Policy{Timeouts: bearing}, Options{})
	resp, err := c.Get(s.URL + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if n, err := io.CopyN(io.Discard, resp.Body, 2000); err != nil { // takes five times as long as a drip is borne
		t.Errorf("a slow body ends after %d bytes: %v", n, err)
	}
}

// raw answers each connection with the same bytes, and closes it.
func raw(t *testing.T, answer string) string {
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

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	c := client(t, &Policy{}, Options{})
	for name, test := range map[string]struct{ answer, want string }{
		"nothing":          {"", "broke off"},
		"half a body":      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "broke off"},
		"not HTTP":         {"SSH-2.0-OpenSSH_9.9\r\n", "failed"},
		"a header of a MB": {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "failed"},
	} {
		host := raw(t, test.answer)
		_, _, err := get(t, c, "http://me:secret@"+host+"/?sig=secret")
		if f := faultOf(t, err, host, test.want); strings.Contains(f.Error(), "secret") || len(f.Error()) > 500 {
			t.Errorf("%s: the error says %q", name, f.Error())
		}
	}
}

func TestHostsThatAreNotThere(t *testing.T) {
	t.Parallel()
	_, _, err := get(t, client(t, &Policy{}, Options{}), "http://127.0.0.1:1/")
	mustFail(t, err, "refuses the connection")
	for want, lookup := range map[string]net.DNSError{
		"host host.invalid is unknown":                 {Name: "host.invalid", IsNotFound: true},
		"the name host.invalid could not be looked up": {Name: "host.invalid", IsTimeout: true},
	} {
		mustFail(t, explain(t.Context(), &net.OpError{Op: "dial", Err: &lookup}, route{host: "host.invalid"}), want)
	}
}

func TestAnswersWithoutABodyHoldNothing(t *testing.T) {
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
		if _, err := c.Do(req); err != nil { //nolint:bodyclose // what is tested is that one need not
			t.Fatal(err)
		}
	}
	if !p.host(route{host: strings.TrimPrefix(s.URL, "http://")}).idle() {
		t.Error("a slot is held")
	}
}
