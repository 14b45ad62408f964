package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var eventsFor = flag.Duration("events", time.Minute, "how long BenchmarkEvents posts events")

const (
	eventsASecond = 1000
	eventAlerts   = 20
	eventHosts    = 10
	slowHost      = 3 // which answers after ten seconds
	downHost      = 6
	slowAnswer    = 10 * time.Second
	posters       = 8
)

// host is where a provider sends to.
type host struct {
	*httptest.Server
	slow time.Duration
	down atomic.Bool

	mu        sync.Mutex
	got       map[string]bool // by number of the event
	latencies []time.Duration // from the post to here
	tries     int
}

func newHost(b *testing.B, slow time.Duration) *host {
	h := &host{slow: slow, got: map[string]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.take))
	b.Cleanup(h.Close)
	return h
}

func (h *host) take(w http.ResponseWriter, r *http.Request) {
	var e struct{ Message string }
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.tries++
	h.mu.Unlock()
	if h.down.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	select {
	case <-time.After(h.slow):
	case <-r.Context().Done():
		return
	}
	var number, posted int64
	if _, err := fmt.Sscanf(e.Message, "event %d at %d", &number, &posted); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got[fmt.Sprint(number)] = true
	h.latencies = append(h.latencies, time.Since(time.Unix(0, posted)))
}

func (h *host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

// BenchmarkEvents posts 1,000 events a second through 20 alerts to 10 providers, two of which want each. One answers after ten seconds and one is down, and
// comes back at the end. No event may be lost, and the others must not notice.
func BenchmarkEvents(b *testing.B) {
	define(b)
	c, err := client.New(testenv.Cluster(b), client.Options{Scheme: manager.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	namespace, address := testenv.Namespace(b), freeAddress(b)
	name := func(name string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i)}
	}
	hosts := make([]*host, eventHosts)
	create := func(o client.Object) {
		if err := c.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	for i := range hosts {
		hosts[i] = newHost(b, map[int]time.Duration{slowHost: slowAnswer}[i])
		create(&v1beta3.Provider{ObjectMeta: name("host", i), Spec: v1beta3.ProviderSpec{Type: "generic", Address: hosts[i].URL}})
	}
	hosts[downHost].down.Store(true)
	for i := range eventAlerts { // alerts 2k and 2k+1 want the events of app k
		create(&v1beta3.Alert{ObjectMeta: name("alert", i), Spec: v1beta3.AlertSpec{
			ProviderRef: meta.LocalObjectReference{Name: fmt.Sprintf("host-%d", i%eventHosts)}, EventSeverity: "info",
			EventSources: []v1beta3.EventSource{{Kind: "Kustomization", Name: fmt.Sprintf("app-%d", i/2)}},
		}})
	}
	controls := startController(b, namespace, "--events-addr", address)
	post := func(app int, message string) error {
		body := fmt.Sprintf(`{"involvedObject":{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","namespace":%q,"name":"app-%d"},
			"severity":"info","reason":"Progressing","message":%q,"reportingController":"kustomize-controller",
			"metadata":{"kustomize.toolkit.fluxcd.io/revision":"main@sha1:0123456789abcdef0123456789abcdef01234567"}}`, namespace, app, message)
		resp, err := http.Post("http://"+address, "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("the answer is %s", resp.Status)
		}
		return nil
	}
	testenv.Eventually(b, "events are taken", func() error { return post(100, "an event that nobody wants") })
	quiet(b)
	idle := controls.memory("VmRSS")
	for b.Loop() {
		posts := make([][]time.Duration, posters)
		var number atomic.Int64
		var wg sync.WaitGroup
		began, before := time.Now(), controls.usage()
		for p := range posters {
			wg.Go(func() {
				for {
					n := number.Add(1)
					due := began.Add(time.Duration(n) * time.Second / eventsASecond)
					if due.Sub(began) > *eventsFor {
						number.Add(-1)
						return
					}
					time.Sleep(time.Until(due))
					start := time.Now()
					if err := post(int(n)%(eventAlerts/2), fmt.Sprintf("event %d at %d", n, start.UnixNano())); err != nil {
						b.Error(err)
					}
					posts[p] = append(posts[p], time.Since(start))
				}
			})
		}
		wg.Wait()
		took, after := time.Since(began), controls.usage()
		sent := int(number.Load())
		each := sent * 2 / eventHosts
		for i, h := range hosts {
			if i != slowHost && i != downHost {
				testenv.Eventually(b, fmt.Sprintf("host %d has all", i), func() error {
					if n := h.count(); n < each-2 {
						return fmt.Errorf("%d of %d", n, each)
					}
					return nil
				})
			}
		}
		t := newTable(fmt.Sprintf("%d events in %.0f s through %d alerts to %d providers (ms from the post)", sent, took.Seconds(), eventAlerts, eventHosts),
			"", "wanted", "delivered", "waiting", "lost", "tries", "median", "99 %", "worst")
		t.row(append([]any{"posts", sent, "", "", "", ""}, spread(slices.Concat(posts...))...)...)
		shut := hosts[downHost]
		lost := 0
		for i, h := range hosts {
			kind := map[int]string{slowHost: "slow", downHost: "down"}[i]
			if kind == "" && i > 1 {
				lost += t.host(b, controls, namespace, "", i, h, wantedBy(i, sent))
				continue
			}
			lost += t.host(b, controls, namespace, strings.TrimSpace(fmt.Sprintf("provider %d %s", i, kind)), i, h, wantedBy(i, sent))
		}
		peak := controls.memory("VmHWM")

		shut.down.Store(false)
		began = time.Now()
		p := &v1beta3.Provider{ObjectMeta: name("host", downHost)}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"now"}}}`, meta.ReconcileRequestAnnotation)
		if err := c.Patch(b.Context(), p, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			b.Fatal(err)
		}
		testenv.Eventually(b, "the one that was down has all", func() error {
			if n, all := shut.count(), wantedBy(downHost, sent); n < all {
				return fmt.Errorf("%d of %d", n, all)
			}
			return nil
		})
		lost += t.host(b, controls, namespace, fmt.Sprintf("provider %d, up again for %.1f s", downHost, time.Since(began).Seconds()), downHost, shut, wantedBy(downHost, sent))
		t.row("memory before, at most (MB)", idle, peak)
		t.row("CPU seconds", (after.cpu - before.cpu).Seconds())
		if lost != 0 {
			b.Errorf("%d notifications are lost", lost)
		}
		b.ReportMetric(float64(lost), "lost")
		b.ReportMetric(peak, "MB")
	}
}

// wantedBy is how many of the events that were sent are for a host: those of the apps of its alerts.
func wantedBy(host, sent int) (n int) {
	for alert := host; alert < eventAlerts; alert += eventHosts {
		app, apps := alert/2, eventAlerts/2
		n += sent / apps
		if app != 0 && app <= sent%apps {
			n++
		}
	}
	return n
}

// host adds what became of the events for a host, and returns how many are nowhere. A row without a name is left out.
func (t *table) host(b *testing.B, controls *process, namespace, name string, i int, h *host, wanted int) int {
	b.Helper()
	m, err := controls.scrape()
	if err != nil {
		b.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := int(m[fmt.Sprintf(`sluice_notifications_waiting{provider="host-%d",provider_namespace=%q}`, i, namespace)])
	lost := max(0, wanted-len(h.got)-waits)
	if name != "" {
		t.row(append([]any{name, wanted, len(h.got), waits, lost, h.tries}, spread(h.latencies)...)...)
	}
	return lost
}

// spread is the median, what 99 of 100 are below, and the worst, in milliseconds.
func spread(times []time.Duration) []any {
	if len(times) == 0 {
		return []any{"", "", ""}
	}
	times = slices.Sorted(slices.Values(times))
	return []any{ms(times[len(times)/2]), ms(times[len(times)*99/100]), ms(times[len(times)-1])}
}
