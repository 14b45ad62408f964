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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
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
	slow atomic.Int64 // nanoseconds until it answers
	down atomic.Bool

	mu        sync.Mutex
	got       map[int64]bool  // by number of the event
	latencies []time.Duration // from the post to here
	tries     int
}

func newHost(b *testing.B) *host {
	h := &host{got: map[int64]bool{}}
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
	case <-time.After(time.Duration(h.slow.Load())):
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
	h.got[number] = true
	h.latencies = append(h.latencies, time.Since(time.Unix(0, posted)))
}

func (h *host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

// clear forgets what came.
func (h *host) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got, h.latencies, h.tries = map[int64]bool{}, nil, 0
}

// notified is a controller with alerts and providers, and the hosts that those send to.
type notified struct {
	*process
	b         *testing.B
	client    client.Client
	namespace string
	address   string // that takes events
	hosts     []*host
}

func newNotified(b *testing.B) *notified {
	b.Helper()
	define(b)
	c, err := client.New(testenv.Cluster(b), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	n := &notified{b: b, client: c, namespace: testenv.Namespace(b), address: testenv.FreeAddress(b)}
	create := func(o client.Object) {
		if err := c.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	for i := range eventHosts {
		h := newHost(b)
		n.hosts = append(n.hosts, h)
		create(&notificationv1.Provider{ObjectMeta: n.named("host", i),
			Spec: notificationv1.ProviderSpec{Type: "generic", Address: h.URL}})
	}
	for i := range eventAlerts { // alerts 2k and 2k+1 want the events of app k
		create(&notificationv1.Alert{ObjectMeta: n.named("alert", i), Spec: notificationv1.AlertSpec{
			ProviderRef: meta.LocalObjectReference{Name: fmt.Sprintf("host-%d", i%eventHosts)}, EventSeverity: "info",
			EventSources: []notificationv1.EventSource{{Kind: "Kustomization", Name: fmt.Sprintf("app-%d", i/2)}},
		}})
	}
	n.process = startController(b, n.namespace, "--events-addr", n.address, "--insecure-events-unauthenticated",
		"--events-quota", "0")
	testenv.Eventually(b, "events are taken", func() error { return n.post(100, "an event that no alert selects") })
	return n
}

func (n *notified) named(what string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: n.namespace, Name: fmt.Sprintf("%s-%d", what, i)}
}

func (n *notified) post(app int, message string) error {
	body := fmt.Sprintf(`{"involvedObject":{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization",
		"namespace":%q,"name":"app-%d"},
		"severity":"info","reason":"Progressing","message":%q,"reportingController":"kustomize-controller",
		"metadata":{"kustomize.toolkit.fluxcd.io/revision":"main@sha1:0123456789abcdef0123456789abcdef01234567"}}`,
		n.namespace, app, message)
	resp, err := http.Post("http://"+n.address, "application/json", strings.NewReader(body))
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

// postAll posts 1,000 events a second as long as it is asked to, and returns how many those were and how long
// each took.
func (n *notified) postAll() (sent int, took []time.Duration) {
	posts := make([][]time.Duration, posters)
	var number atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for p := range posters {
		wg.Go(func() {
			for {
				i := number.Add(1)
				due := began.Add(time.Duration(i) * time.Second / eventsASecond)
				if due.Sub(began) > *eventsFor {
					number.Add(-1)
					return
				}
				time.Sleep(time.Until(due)) // the rate does not depend on the latency
				start := time.Now()
				if err := n.post(int(i)%(eventAlerts/2),
					fmt.Sprintf("event %d at %d", i, start.UnixNano())); err != nil {
					n.b.Error(err)
				}
				posts[p] = append(posts[p], time.Since(start))
			}
		})
	}
	wg.Wait()
	return int(number.Load()), slices.Concat(posts...)
}

func healthy(host int) bool { return host != slowHost && host != downHost }

// round posts events, waits until the healthy hosts have theirs, and tells in a table what became of all. It
// returns how many are lost, and what came to the healthy hosts.
func (n *notified) round(about string) (t *table, sent, lost int, well deliveries) {
	n.b.Helper()
	quiet(n.b)
	for _, h := range n.hosts {
		h.clear()
	}
	began, before := time.Now(), n.usage()
	sent, posts := n.postAll()
	took, cpu := time.Since(began), n.usage().cpu-before.cpu
	for i := range n.hosts {
		if healthy(i) {
			n.await(i, sent)
		}
	}
	t = newTable(fmt.Sprintf("%d events in %.0f s through %d alerts to %d providers, %s (ms from the post)", sent,
		took.Seconds(), eventAlerts, eventHosts, about),
		"", "wanted", "delivered", "waiting", "lost", "tries", "median", "99 %", "worst")
	t.row(append([]any{"posts", sent, "", "", "", ""}, spread(posts)...)...)
	for i := range n.hosts {
		d := n.deliveries(i, sent)
		lost += d.lost
		if healthy(i) {
			well.add(d)
		} else {
			t.deliveries(fmt.Sprintf("provider %d", i), d)
		}
	}
	t.deliveries("the others, together", well)
	t.row("CPU of an event (ms)", "", "", "", "", "", float64(cpu.Microseconds())/1000/float64(sent))
	return t, sent, lost, well
}

// await waits until a host has all events that it is to have.
func (n *notified) await(i, sent int) {
	n.b.Helper()
	testenv.Eventually(n.b, fmt.Sprintf("host %d has all", i), func() error {
		if have, all := n.hosts[i].count(), wantedBy(i, sent); have < all {
			return fmt.Errorf("%d of %d", have, all)
		}
		return nil
	})
}

// deliveries are what became of the events for a host.
type deliveries struct {
	wanted, delivered, waiting, lost, tries int
	latencies                               []time.Duration
}

func (d *deliveries) add(o deliveries) {
	d.wanted, d.delivered, d.waiting, d.lost, d.tries = d.wanted+o.wanted, d.delivered+o.delivered, d.waiting+o.waiting,
		d.lost+o.lost, d.tries+o.tries
	d.latencies = append(d.latencies, o.latencies...)
}

func (n *notified) deliveries(i, sent int) deliveries {
	n.b.Helper()
	m, err := n.scrape()
	if err != nil {
		n.b.Fatal(err)
	}
	h := n.hosts[i]
	h.mu.Lock()
	defer h.mu.Unlock()
	d := deliveries{wanted: wantedBy(i, sent), delivered: len(h.got), tries: h.tries,
		latencies: slices.Clone(h.latencies)}
	d.waiting = int(m[fmt.Sprintf(`sluice_notifications_waiting{provider="host-%d",provider_namespace=%q}`, i,
		n.namespace)])
	d.lost = max(0, d.wanted-d.delivered-d.waiting)
	return d
}

func (t *table) deliveries(name string, d deliveries) {
	t.row(append([]any{name, d.wanted, d.delivered, d.waiting, d.lost, d.tries}, spread(d.latencies)...)...)
}

// BenchmarkEvents posts 1,000 events a second through 20 alerts to 10 providers, two of which want each:
// first while all are well, then while one answers after ten seconds and one is down, which comes back at the
// end. No event may be lost, and the others must not notice.
func BenchmarkEvents(b *testing.B) {
	n := newNotified(b)
	idle := n.memory("VmRSS")
	for b.Loop() {
		_, _, lost, without := n.round("all well")
		n.hosts[slowHost].slow.Store(int64(slowAnswer))
		n.hosts[downHost].down.Store(true)
		t, sent, more, with := n.round(fmt.Sprintf("%d answers in %s and %d is down", slowHost, slowAnswer, downHost))
		lost += more

		n.hosts[downHost].down.Store(false)
		began, p := time.Now(), &notificationv1.Provider{ObjectMeta: n.named("host", downHost)}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"now"}}}`, meta.ReconcileRequestAnnotation)
		if err := n.client.Patch(b.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			b.Fatal(err)
		}
		n.await(downHost, sent)
		t.deliveries(fmt.Sprintf("provider %d, up again for %.1f s", downHost, time.Since(began).Seconds()),
			n.deliveries(downHost, sent))
		peak := n.memory("VmHWM")
		t.row("memory before, at most (MB)", idle, peak)
		if lost != 0 {
			b.Errorf("%d notifications are lost", lost)
		}
		b.ReportMetric(float64(lost), "lost")
		b.ReportMetric(peak, "MB")
		b.ReportMetric(with.median()/without.median(), "healthy-median/without-the-bad")
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

func (d *deliveries) median() float64 {
	return slices.Sorted(slices.Values(d.latencies))[len(d.latencies)/2].Seconds()
}

// spread is the median, what 99 of 100 are below, and the worst, in milliseconds.
func spread(times []time.Duration) []any {
	if len(times) == 0 {
		return []any{"", "", ""}
	}
	times = slices.Sorted(slices.Values(times))
	return []any{ms(times[len(times)/2]), ms(times[len(times)*99/100]), ms(times[len(times)-1])}
}
