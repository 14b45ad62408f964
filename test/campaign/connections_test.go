package campaign

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	unfinishedHeader = 63_000 // bytes
	requestsOfOthers = 500    // during each flood
	// latencySlack is what the latency of a request may grow by on a busy machine, besides twice the other one.
	latencySlack = 500 * time.Millisecond
)

// TestCampaignConnections floods each port of the process with connections whose header does not end: it lives on under
// its memory limit, and requests of another address take at most twice as long as while a server of the standard
// library has the flood, which uses the processors of the test as well.
func TestCampaignConnections(t *testing.T) {
	const short, full = 1_000, 10_000
	e := begin(t, 1, 3)
	connections := short
	if *isFull {
		connections = full
	}
	ports := map[string]string{}
	var flags []string
	for _, flag := range []string{"storage-addr", "health-addr", "receiverAddr", "events-addr", "images-addr",
		"pprof-addr", "ui-addr", "mcp-addr", "review-addr"} {
		ports[flag] = testenv.FreeAddress(t)
		flags = append(flags, "--"+flag, ports[flag])
	}
	flags = append(flags, "--ui-external-url", "http://"+ports["ui-addr"], "--mcp-external-url",
		"http://"+ports["mcp-addr"], "--review-config", reviewConfig(t))
	cluster(t)
	c := start(t, settings{namespace: "flux-system", flags: flags})
	c.runs()
	ports["metrics-addr"] = c.metrics
	for flag, address := range ports {
		testenv.Eventually(t, "--"+flag+" is served", func() error {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	other := sink(t)
	during := func(flooded, address string) (percentile, longest time.Duration) {
		defer c.floodHeaders(flooded, connections)()
		return c.latency(address)
	}
	slowest, slowestOther, single := time.Duration(0), time.Duration(0), time.Duration(0)
	e.each(func(int, *rand.Rand) {
		for flag, address := range ports {
			elsewhere, _ := during(other, address)
			here, longest := during(address, address)
			c.mustLive()
			slowest, slowestOther, single = max(slowest, here), max(slowestOther, elsewhere), max(single, longest)
			if here > 2*elsewhere+latencySlack {
				t.Errorf("--%s: the 99th percentile is %s, and %s if another server has the flood", flag, here,
					elsewhere)
			}
		}
	})
	e.note("%d connections to each of %d ports, 99th percentile of others at most %s, %s if another server has the "+
		"flood, one request %s, peak %d MiB", connections, len(ports), slowest.Round(time.Millisecond),
		slowestOther.Round(time.Millisecond), single.Round(time.Millisecond), c.peak)
}

// reviewConfig returns a configuration of reviews of a repository that does not exist.
func reviewConfig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"token": "token", "secret": "a-secret-of-the-webhook",
		"review.yaml": "repositories: [{name: x, url: 'http://127.0.0.1:1/org/x', type: gitea, tokenFile: token, " +
			"webhookSecretFile: secret}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "review.yaml")
}

// sink returns the address of a server of the standard library that bounds headers as the process does, and nothing
// else.
func sink(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.MaxHeaderBytes = listen.MaxHeader
	server.Config.ReadHeaderTimeout = listen.HeaderTimeout
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// latency returns the 99th percentile of requests from an address of its own, and the longest of them. Any answer
// counts. The first request waits behind the connections that the kernel has accepted at once.
func (c *controller) latency(address string) (percentile, longest time.Duration) {
	c.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableKeepAlives: true}}
	var all []time.Duration
	for range requestsOfOthers {
		began := time.Now()
		resp, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			c.Errorf("%s does not answer: %v", address, err)
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0, 0
	}
	return all[(len(all)*99+99)/100-1], all[len(all)-1]
}

// pace is how long each of the senders of a flood waits between connections, once all of them are open: the machine of
// the test would otherwise be busy with the flood itself.
const pace = 8 * time.Millisecond

// floodHeaders opens connections whose header does not end, and goes on to open a thousand others each second, until
// the returned function is called.
func (c *controller) floodHeaders(address string, n int) (end func()) {
	var header strings.Builder
	header.WriteString("POST /hook/x HTTP/1.1\r\nHost: a\r\n")
	for i := 0; header.Len() < unfinishedHeader; i++ {
		fmt.Fprintf(&header, "h%d: vvvvvvvv\r\n", i)
	}
	ended := make(chan struct{})
	var senders, first sync.WaitGroup
	const parallel = 8
	first.Add(parallel)
	for range parallel {
		senders.Go(func() {
			open := make([]net.Conn, n/parallel)
			for i := 0; ; i++ {
				if i == len(open) {
					first.Done()
				}
				select {
				case <-ended:
					for _, conn := range open {
						if conn != nil {
							_ = conn.Close()
						}
					}
					if i < len(open) {
						first.Done()
					}
					return
				default:
				}
				if old := open[i%len(open)]; old != nil {
					_ = old.Close()
				}
				if i >= len(open) {
					time.Sleep(pace)
				}
				conn, err := net.DialTimeout("tcp", address, time.Second)
				if open[i%len(open)] = conn; err == nil {
					_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
					_, _ = io.WriteString(conn, header.String())
				} else {
					open[i%len(open)] = nil
				}
			}
		})
	}
	first.Wait()
	return func() { close(ended); senders.Wait() }
}
