package campaign

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	unfinishedHeader = 63_000 // bytes
	// latencySlack is what the latency of a request may grow by on a busy machine, besides twice the one before.
	latencySlack = 500 * time.Millisecond
)

// TestCampaignConnections floods each port of the process with connections whose header does not end: it lives on under
// its memory limit, and requests of another address take at most twice as long.
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
		"pprof-addr", "ui-addr"} {
		ports[flag] = freeAddress(t)
		flags = append(flags, "--"+flag, ports[flag])
	}
	flags = append(flags, "--ui-external-url", "http://"+ports["ui-addr"])
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
	slowest := time.Duration(0)
	e.each(func(int, *rand.Rand) {
		for flag, address := range ports {
			before := c.latency(address)
			end := c.floodHeaders(address, connections)
			during := c.latency(address)
			end()
			c.mustLive()
			slowest = max(slowest, during)
			if during > 2*before+latencySlack {
				t.Errorf("--%s: the 99th percentile is %s, before the flood %s", flag, during, before)
			}
		}
	})
	e.note("%d connections to each of %d ports, 99th percentile of others at most %s, peak %d MiB", connections,
		len(ports), slowest.Round(time.Millisecond), c.peak)
}

// latency returns the 99th percentile of requests from an address of its own. Any answer counts.
func (c *controller) latency(address string) time.Duration {
	c.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableKeepAlives: true}}
	var all []time.Duration
	for range 100 {
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
		return 0
	}
	return all[len(all)*99/100]
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
