package manager

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/reflector"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/receiver"
	"github.com/sluice-gitops/sluice/internal/review"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// endpoint is a server of the process, on an address.
type endpoint struct {
	name  string
	path  string // of a request that needs no login
	serve func(t *testing.T) (addr string)
}

// serving returns how to serve with a server on a listener of the process.
func serving(server func(t *testing.T) *http.Server) func(*testing.T) string {
	return func(t *testing.T) string {
		l, err := listen.TCP("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := server(t)
		guard.Go("a server", func() { _ = s.Serve(l) })
		t.Cleanup(func() { _ = s.Close() })
		return l.Addr().String()
	}
}

var endpoints = []endpoint{
	{name: "artifacts", path: "/healthz", serve: serving(func(*testing.T) *http.Server {
		return artifact.NewServer(&artifact.Server{})
	})},
	{name: "images", path: "/v1/openapi.json", serve: serving(func(*testing.T) *http.Server {
		return reflector.NewServer(&reflector.Server{})
	})},
	{name: "events", path: "/", serve: serving(func(t *testing.T) *http.Server {
		return delivery.NewServer(delivery.New(delivery.Options{Dir: t.TempDir(), Clock: clock.RealClock{}}), nil, 0)
	})},
	{name: "webhooks", path: "/", serve: serving(func(*testing.T) *http.Server {
		return receiver.NewServer(&receiver.Server{Clock: clock.RealClock{}})
	})},
	{name: "metrics", path: metrics.Path, serve: serving(func(*testing.T) *http.Server {
		return metrics.NewServer(nil)
	})},
	{name: "profiles", path: "/debug/pprof/cmdline", serve: serving(func(*testing.T) *http.Server {
		return metrics.NewProfiler()
	})},
	{name: "health", path: "/healthz", serve: func(t *testing.T) string {
		address := testenv.FreeAddress(t)
		health, err := kubeclient.NewHealth(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(health.Close)
		return address
	}},
	{name: "ui", path: "/", serve: func(t *testing.T) string {
		l, err := listen.TCP("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		t.Cleanup(stop)
		s := &ui.Server{Model: view.NewModel(), Login: ui.NewLocalLogin(&ui.User{Name: "a"}), Now: time.Now,
			Pages: fstest.MapFS{"index.html": {Data: []byte("page")}}, Log: logr.Discard()}
		guard.Go("the UI", func() { _ = s.Serve(ctx, l) })
		return l.Addr().String()
	}},
	{name: "reviews", path: review.HookPath + "fleet", serve: serving(func(*testing.T) *http.Server {
		return (&review.Service{}).HTTPServer()
	})},
	{name: "mcp", path: mcp.Path, serve: func(t *testing.T) string {
		l, err := listen.TCP("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		t.Cleanup(stop)
		s := mcp.New(mcp.Options{UI: &ui.Server{Model: view.NewModel(), Now: time.Now, Log: logr.Discard()},
			Log: logr.Discard()})
		o := mcp.HTTPOptions{External: &url.URL{Scheme: "http", Host: l.Addr().String()}}
		guard.Go("the MCP server", func() { _ = s.Serve(ctx, l, o) })
		return l.Addr().String()
	}},
}

const (
	floodConnections = 2000
	floodHeader      = 63_000   // bytes, that do not end
	floodMemory      = 64 << 20 // bytes that a flood may take
)

// unfinished returns a request whose header does not end. Many short lines take the most memory.
func unfinished(bytes int) string {
	var b strings.Builder
	b.WriteString("POST /hook/x HTTP/1.1\r\nHost: a\r\n")
	for n := 0; b.Len() < bytes; n++ {
		fmt.Fprintf(&b, "h%d: vvvvvvvv\r\n", n)
	}
	return b.String()
}

// flood opens connections that send a request without an end, and keeps those that the server keeps.
func flood(t *testing.T, addr, request string) {
	t.Helper()
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() {
		for _, c := range open {
			_ = c.Close()
		}
	})
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for range floodConnections / 8 {
				c, err := net.DialTimeout("tcp", addr, 5*time.Second)
				if err != nil {
					continue // refused, as it may be
				}
				_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
				_, _ = io.WriteString(c, request)
				mu.Lock()
				open = append(open, c)
				mu.Unlock()
			}
		})
	}
	senders.Wait()
}

func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestUnfinishedHeadersOnEachListener floods each server of the process with headers that do not end: they take little
// memory, and another address as well as the same one are served.
func TestUnfinishedHeadersOnEachListener(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as by default: the less often, the more gaps between objects
	for _, e := range endpoints {
		for _, bytes := range []int{listen.MaxHeader + 3<<10, floodHeader} {
			t.Run(fmt.Sprintf("%s/%d", e.name, bytes), func(t *testing.T) {
				addr := e.serve(t)
				before := inUse()
				flood(t, addr, unfinished(bytes))
				// Those that the server closed are gone once their goroutines have ended. All are gone when their
				// headers time out, so it must be before.
				testenv.Within(t, listen.HeaderTimeout/2, "the connections take little memory", func() error {
					if took := inUse() - before; took > floodMemory {
						return fmt.Errorf("they take %d MiB", took>>20)
					}
					return nil
				})
				for _, from := range []string{"127.0.0.2", "127.0.0.1"} {
					testenv.Eventually(t, "a request from "+from, func() error {
						err := answered(t, from, "http://"+addr+e.path)
						if err != nil { // of a slow machine, or as the flood keeps it out: until its headers time out
							flood(t, addr, unfinished(bytes))
						}
						return err
					})
				}
			})
		}
	}
}

// answered returns an error unless a server answers a request from a local address soon.
func answered(t *testing.T, from, url string) error {
	t.Helper()
	began := time.Now()
	status, err := request(t, from, url)
	if took := time.Since(began); err != nil || status >= 500 || took > listen.HeaderTimeout/2 {
		return fmt.Errorf("status %d after %s: %w", status, took, err)
	}
	return nil
}

// request gets a URL from a local address.
func request(t *testing.T, from, url string) (int, error) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
