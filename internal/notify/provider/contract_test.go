package provider

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// The tests in this file are the contract of [Provider]. Every type of the API must pass them.

// TestContractCoversAllTypes fails if a type of the CRD is not implemented or not in the contract suite.
func TestContractCoversAllTypes(t *testing.T) {
	covered := map[string]bool{"nats": true} // by TestNATSContract
	for _, s := range httpSetups() {
		covered[s.kind] = true
	}
	for _, kind := range typesOfCRD(t) {
		if types[kind] == nil {
			t.Errorf("type %s is not implemented", kind)
		}
		if !covered[kind] {
			t.Errorf("type %s is not in the contract suite: add a setup", kind)
		}
	}
	for kind := range types {
		if !covered[kind] {
			t.Errorf("type %s is not in the contract suite: add a setup", kind)
		}
	}
}

// typesOfCRD returns the values of spec.type in all versions of the CRD.
func typesOfCRD(t *testing.T) (all []string) {
	t.Helper()
	path := filepath.Join("..", "..", "..", "config", "crd", "notification.toolkit.fluxcd.io_providers.yaml")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	for _, v := range crd.Spec.Versions {
		for _, value := range v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["type"].Enum {
			var kind string
			if err := json.Unmarshal(value.Raw, &kind); err != nil {
				t.Fatal(err)
			}
			all = append(all, kind)
		}
	}
	if len(all) < len(types) {
		t.Fatalf("the CRD has only the types %q", all)
	}
	return all
}

// recorder is a service that accepts events and counts requests that write.
type recorder struct {
	setup  setup
	mu     sync.Mutex
	writes []*http.Request
	bodies [][]byte
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	response, status := r.setup.response, max(r.setup.status, http.StatusOK)
	if req.Method == http.MethodGet && r.setup.isGitHost() {
		response, status = "{}", http.StatusOK
		if r.setup.list {
			response = "[]"
		}
	} else if req.Method != http.MethodGet {
		r.mu.Lock()
		r.writes, r.bodies = append(r.writes, req), append(r.bodies, body)
		r.mu.Unlock()
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, response)
}

// contractEvents are unusual events, which every type must accept.
func contractEvents() map[string]event.Event {
	large := failure()
	large.Message = strings.Repeat("0123456789 line\n", event.MaxMessage/16)
	for i := range event.MaxMetadata - len(large.Metadata) - 1 {
		large.Metadata["key-"+strconv.Itoa(i)] = strings.Repeat("v", 8<<10)
	}
	large.InvolvedObject.Name = strings.Repeat("n", 253)
	unicode := failure()
	unicode.Message = "Ünïcödé 🚀 日本語 \u202eright to left\u2028 \x00 \x1b[31m invalid \xff"
	unicode.Metadata["🔑"] = "日本語 \xff"
	unicode.Metadata[event.Summary] = "🚀 \u202e"
	empty := failure()
	empty.Message, empty.Reason, empty.Metadata, empty.ReportingController = "", "", nil, ""
	regular := failure()
	for _, e := range []event.Event{large, unicode, regular} {
		e.Metadata[event.ChangeRequest] = "42" // required for a comment
	}
	return map[string]event.Event{"regular": regular, "large": large, "unicode": unicode, "empty": empty}
}

// TestContractOneRequestPerEvent checks that each event is one request that writes, with a valid body.
func TestContractOneRequestPerEvent(t *testing.T) {
	for name, s := range httpSetups() {
		for kind, e := range contractEvents() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				r := &recorder{setup: s}
				if err := newProvider(t, s.options(serve(t, r.ServeHTTP))).Send(testContext(t), e); err != nil {
					t.Fatal(err)
				}
				want := 1
				if kind == "empty" && s.isGitHost() && s.kind != "githubdispatch" {
					want = 0 // no commit and no change request
				}
				if len(r.writes) != want {
					t.Fatalf("got %d requests, want %d", len(r.writes), want)
				}
				for _, body := range r.bodies {
					isText := s.kind != "otel"
					if isText && !utf8.Valid(body) || len(body) > 2<<20 {
						t.Errorf("body of %d bytes, valid UTF-8: %v", len(body), utf8.Valid(body))
					}
				}
			})
		}
	}
}

// TestContractStatusCodes checks the fault for each class of status. The service echoes credentials.
func TestContractStatusCodes(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		body       string
		terminal   bool
		wait       time.Duration
		reason     string
		want       string // in the error
	}{
		"bad request": {status: 400, terminal: true, reason: SendFailed, body: `{"message":"invalid_blocks"}`,
			want: "invalid_blocks"},
		"unauthorized": {status: 401, terminal: true, reason: meta.AuthenticationFailedReason,
			want: "in the Secret"},
		"forbidden":                  {status: 403, terminal: true, reason: meta.AuthenticationFailedReason},
		"forbidden with Retry-After": {status: 403, retryAfter: "30", wait: 30 * time.Second, reason: SendFailed},
		"not found":                  {status: 404, terminal: true, reason: SendFailed, want: "Check the address"},
		"gone":                       {status: 410, terminal: true, reason: SendFailed},
		"too large":                  {status: 413, terminal: true, reason: SendFailed},
		"too many requests":          {status: 429, retryAfter: "120", wait: 2 * time.Minute, reason: SendFailed},
		"server error":               {status: 500, reason: SendFailed},
		"bad gateway":                {status: 502, body: "<html><body>nginx</body></html>", reason: SendFailed},
		"unavailable":                {status: 503, retryAfter: "10", wait: 10 * time.Second, reason: SendFailed},
	} {
		for kind, s := range httpSetups() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				server := serve(t, func(w http.ResponseWriter, r *http.Request) {
					content, _ := io.ReadAll(r.Body)
					if c.retryAfter != "" {
						w.Header().Set("Retry-After", c.retryAfter)
					}
					w.WriteHeader(c.status)
					if c.body != "" {
						_, _ = io.WriteString(w, c.body)
						return
					}
					echo := `{"error":"no: ` + r.RequestURI + " " + r.Header.Get("Authorization") + `"}`
					_, _ = io.WriteString(w, echo)
					_, _ = w.Write(content)
				})
				err := newProvider(t, s.options(server)).Send(testContext(t), contractEvents()["regular"])
				f := fault.As(err)
				if f == nil {
					t.Fatalf("got %v, want a fault", err)
				}
				if f.Terminal != c.terminal || f.RetryAfter != c.wait || f.Reason != c.reason {
					t.Errorf("got Terminal %v, RetryAfter %s, reason %s; want %v, %s, %s: %s",
						f.Terminal, f.RetryAfter, f.Reason, c.terminal, c.wait, c.reason, f)
				}
				if !strings.Contains(f.Error(), c.want) || len(f.Error()) > 1000 {
					t.Errorf("got error %q, want %q", f.Error(), c.want)
				}
				expectNoSecrets(t, err)
			})
		}
	}
}

// TestContractRedirects checks that no redirect is followed with credentials. Only git hosts may follow one, since
// repositories are renamed.
func TestContractRedirects(t *testing.T) {
	for name, s := range httpSetups() {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var redirected []*http.Request
			target := serve(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				redirected = append(redirected, r)
				w.WriteHeader(http.StatusTeapot)
			})
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", target+"/elsewhere")
				w.WriteHeader(http.StatusTemporaryRedirect)
			})
			o := s.options(server)
			o.Transport = exceptTarget{target: target, next: o.Transport}
			err := newProvider(t, o).Send(testContext(t), contractEvents()["regular"])
			f := fault.As(err)
			if f == nil || !f.Terminal {
				t.Fatalf("got %v, want a terminal fault", err)
			}
			expectNoSecrets(t, err)
			mu.Lock()
			defer mu.Unlock()
			if len(redirected) > 0 && !s.isGitHost() {
				t.Errorf("followed the redirect to %s", redirected[0].URL)
			}
			if !s.isGitHost() && !strings.Contains(f.Error(), "redirects are not followed") {
				t.Errorf("got error %q, want a hint about redirects", f)
			}
			for _, r := range redirected {
				if login := r.Header.Get("Authorization"); login != "" {
					t.Errorf("sent the credentials %q to the target of the redirect", login)
				}
			}
		})
	}
}

// exceptTarget sends requests for the target of a redirect there, and all others to the next transport.
type exceptTarget struct {
	target string
	next   http.RoundTripper
}

func (e exceptTarget) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.String(), e.target) {
		return http.DefaultTransport.RoundTrip(r)
	}
	return e.next.RoundTrip(r)
}

// TestContractResponseIsBounded sends a response of 100 MB. It must not be read to the end.
func TestContractResponseIsBounded(t *testing.T) {
	megabyte := []byte(strings.Repeat("a", 1<<20))
	for name, s := range httpSetups() {
		t.Run(name, func(t *testing.T) {
			for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
				written := make(chan int, 10)
				server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					n := 0
					for ; n < 100; n++ {
						if _, err := w.Write(megabyte); err != nil {
							break
						}
					}
					written <- n
				})
				err := newProvider(t, s.options(server)).Send(testContext(t), contractEvents()["regular"])
				if n := <-written; n == 100 {
					t.Error("the complete response was read")
				}
				if status != http.StatusOK && err == nil {
					t.Error("got no error for a server error")
				}
				if err != nil && len(err.Error()) > 1000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
		})
	}
}

// TestContractUnreachable checks that the error of an unreachable server is retried and has no credentials.
func TestContractUnreachable(t *testing.T) {
	for name, s := range httpSetups() {
		for _, server := range []string{"http://127.0.0.1:1", "https://host.invalid"} {
			err := newProvider(t, s.options(server)).Send(testContext(t), contractEvents()["regular"])
			f := fault.As(err)
			if f == nil || f.Terminal {
				t.Errorf("%s: got %v, want a fault that is not terminal", name, err)
				continue
			}
			expectNoSecrets(t, err)
		}
	}
}

// TestContractContext checks that Send ends with its context while the server does not respond.
func TestContractContext(t *testing.T) {
	ended := make(chan struct{})
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	defer close(ended)
	for name, s := range httpSetups() {
		expectContextErrors(t, name, s.options(server))
	}
}

// expectContextErrors sends events to a server that does not respond, with a deadline and with cancellation.
func expectContextErrors(t *testing.T, name string, o Options) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := newProvider(t, o).Send(deadline, contractEvents()["regular"])
	if f := fault.As(err); f == nil || f.Terminal {
		t.Errorf("%s: deadline: got %v, want a fault that is not terminal", name, err)
		return
	}
	timedOut := slices.ContainsFunc([]string{"timeout", "deadline exceeded"},
		func(s string) bool { return strings.Contains(err.Error(), s) })
	if !timedOut || name == "generic" && fault.As(err).Hint != "Check that the host answers, or raise spec.timeout" {
		t.Errorf("%s: deadline: got error %q", name, err)
	}
	expectNoSecrets(t, err)

	canceled, stop := context.WithCancel(t.Context())
	stop()
	err = newProvider(t, o).Send(canceled, contractEvents()["regular"])
	if f := fault.As(err); f == nil || f.Terminal {
		t.Errorf("%s: canceled: got %v, want a fault that is not terminal", name, err)
		return
	}
	expectNoSecrets(t, err)
}

// TestNATSContract is the contract for the type that does not use HTTP. TestNATSErrors has its faults.
func TestNATSContract(t *testing.T) {
	for kind, e := range contractEvents() {
		address := serveNATS(t, &server.Options{})
		listener, received := listen(t, address)
		if err := newProvider(t, natsOptions(address)).Send(testContext(t), e); err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		// Send waits for the server's answer to a ping, so that all that it sent is before this one's answer.
		if err := listener.Flush(); err != nil {
			t.Fatal(err)
		}
		if n, _, err := received.Pending(); err != nil || n != 1 {
			t.Errorf("%s: got %d messages (%v), want 1", kind, n, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	expectContextErrors(t, "nats", natsOptions(silent.Addr().String()))
	small := serveNATS(t, &server.Options{MaxPayload: 100})
	err = newProvider(t, natsOptions(small)).Send(testContext(t), failure())
	if f := fault.As(err); f == nil || !f.Terminal || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("event above the maximum payload: got %v, want a terminal fault", err)
	}
}
