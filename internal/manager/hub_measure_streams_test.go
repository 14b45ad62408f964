package manager

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/stream"
)

// openings counts the streams that clusters open.
type openings struct {
	mu        sync.Mutex
	at        []time.Time
	perSecond map[int64]int
}

func (o *openings) add() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.at = append(o.at, now)
	o.perSecond[now.Unix()]++
}

func (o *openings) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at, o.perSecond = nil, map[int64]int{}
}

// summary returns how many there were in each second, and the time of the last one.
func (o *openings) summary() (perSecond []int, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last = o.at[len(o.at)-1]
	for second := o.at[0].Unix(); second <= last.Unix(); second++ {
		perSecond = append(perSecond, o.perSecond[second])
	}
	return perSecond, last
}

// refusals counts why attempts of clusters failed. The log of a cluster has a reason once.
type refusals struct {
	mu sync.Mutex
	by map[string]int
}

var reasonOf = regexp.MustCompile(`"reason"="([^"]*)`)

func (r *refusals) add(_, text string) {
	if reason := reasonOf.FindStringSubmatch(text); reason != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.by[portOf.ReplaceAllString(reason[1], "")]++
	}
}

// portOf is the port of an address, which differs for each connection.
var portOf = regexp.MustCompile(`:\d+`)

// TestMeasureStreams measures a hub to which SLUICE_MEASURE=1000 clusters report and hold a stream each, over TLS:
// memory and CPU without changes, requests through the streams, and how streams come back after the hub was restarted
// and after it was away.
func TestMeasureStreams(t *testing.T) {
	clusters, err := strconv.Atoi(os.Getenv("SLUICE_MEASURE"))
	if err != nil {
		t.Skip("takes minutes; set SLUICE_MEASURE to the number of clusters")
	}
	h := newMeasuredHub(t, clusters)
	reasons := &refusals{by: map[string]int{}}
	opened, failed := &openings{perSecond: map[int64]int{}}, &atomic.Int64{}
	answer := []byte(`{"items":"` + strings.Repeat("x", 4<<10) + `"}`)
	for n := range clusters {
		h.report(n, failed)
		c := &stream.Cluster{Client: h.client(n), Log: funcr.New(reasons.add, funcr.Options{}),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(answer)
			})}
		c.OnChange = func() {
			if c.IsOpen() {
				opened.add()
			}
		}
		h.run(c.Run)
	}
	linked := func(l *fleet.List) bool {
		return len(l.Clusters) == clusters && allReport(l) && !slices.ContainsFunc(l.Clusters,
			func(c fleet.Cluster) bool { return !c.IsLinked })
	}
	began := time.Now()
	h.await("all streams", 3*time.Minute, linked)
	t.Logf("all have a stream after %s, at load %s", time.Since(began).Round(time.Second), load())
	time.Sleep(5 * time.Second) // what is measured is a rest, which has no end to wait for

	cpu, _ := h.usage()
	const rest = 2 * time.Minute
	time.Sleep(rest) // the time of the measurement
	later, memory := h.usage()
	t.Logf("without changes: %.1f%% of a core, %s, at load %s", 100*(later-cpu).Seconds()/rest.Seconds(), memory,
		load())
	h.requests(100, answer)

	h.again("a restart", clusters, 0, opened, linked)
	h.again("a minute without a hub", clusters, time.Minute, opened, linked)
	t.Logf("attempts failed, by reason: %v", reasons.by)
}

// requests sends requests through random streams.
func (h *measuredHub) requests(n int, want []byte) {
	h.Helper()
	config, err := h.reader.TLS()
	if err != nil {
		h.Fatal(err)
	}
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	var times []time.Duration
	for range n {
		began := time.Now()
		name := fmt.Sprintf("edge-%d", rand.N(len(h.tokens)))
		resp, err := browser.Get(h.url + stream.Prefix(name) + "/api/v1/me")
		if err != nil {
			h.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !bytes.Equal(body, want) {
			h.Fatalf("%s answered %d %.100q, %v", name, resp.StatusCode, body, err)
		}
		times = append(times, time.Since(began).Round(100*time.Microsecond))
	}
	slices.Sort(times)
	h.Logf("of %d requests through streams, half take %s, one %s, at load %s", n, times[n/2], times[n-1], load())
}

// again ends the hub, starts it after a time, and waits for all streams.
func (h *measuredHub) again(what string, clusters int, away time.Duration, opened *openings,
	linked func(*fleet.List) bool,
) {
	h.Helper()
	h.kill()
	time.Sleep(away) // part of what is measured: clusters retry less often the longer the hub is away
	opened.reset()
	h.start()
	h.await("an answer of the hub", time.Minute, func(*fleet.List) bool { return true })
	ready := time.Now()
	h.await("all streams after "+what, 3*time.Minute, linked)
	perSecond, last := opened.summary()
	_, memory := h.usage()
	h.Logf("after %s, all have a stream within %s of the first answer of the hub, %d in each second, %s, at load %s",
		what, last.Sub(ready).Round(time.Millisecond), perSecond, memory, load())
	// stream.TestClustersDoNotComeAtOnce bounds the number in a second; here a machine that stalls bunches them.
	const window = 10
	for i := range perSecond {
		n := 0
		for _, inSecond := range perSecond[i:min(i+window, len(perSecond))] {
			n += inSecond
		}
		if n > clusters/2 {
			h.Errorf("%d clusters opened a stream within %d seconds", n, window)
		}
	}
}

// load returns the load of the machine in the last minute.
func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
