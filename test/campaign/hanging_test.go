package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// hostTimeout is spec.timeout of the sources. A pass may take one second longer.
const hostTimeout = 4 * time.Second

// TestCampaignHangingHosts has sources and webhooks of hosts that accept connections and answer nothing, or send a byte
// from time to time. No worker may wait for one longer than the timeout and a second, and the others go on.
func TestCampaignHangingHosts(t *testing.T) {
	const short, full = 15, 200
	e := begin(t, short, full)
	git := testenv.NewGit(t)
	good, hostile := newTenant(t, git), newTenant(t, git)
	good.commit("first")
	good.create(good.source("app"), good.app("app"))
	c := start(t, settings{namespace: "flux-system", flags: []string{"--concurrent", "4"}})
	good.has(c, "first")
	hostile.create(&corev1.Secret{ObjectMeta: hostile.named("keys"), StringData: map[string]string{
		"accesskey": "a", "secretkey": "b"}})
	var sources []reconcile.Object
	var ofSources, webhooks connections
	e.each(func(i int, random *rand.Rand) {
		held := &ofSources
		if i%5 == webhook {
			held = &webhooks
		}
		address := newHangingHost(t, random, held)
		o := hostile.hanging(i, address)
		hostile.create(o)
		if i%5 == webhook { // gets the events about the failures of the others
			hostile.create(&notificationv1.Alert{ObjectMeta: hostile.named(o.GetName()),
				Spec: notificationv1.AlertSpec{
					ProviderRef:  meta.LocalObjectReference{Name: o.GetName()},
					EventSources: []notificationv1.EventSource{{Kind: sourcev1.GitRepositoryKind, Name: "*"}}}})
		}
		if source, ok := o.(reconcile.Object); ok && i%5 != webhook {
			sources = append(sources, source)
		}
		if i%20 == 0 {
			value := fmt.Sprint("beside ", i)
			good.commit(value)
			good.fetch()
			good.has(c, value)
		}
	})
	hostile.allFail(c, sources)
	if e.count > webhook {
		testenv.Eventually(t, "a webhook was given up", func() error {
			if webhooks.slowest() == 0 {
				return errors.New("no connection has ended")
			}
			return nil
		})
	}
	longest, err := c.longestPass()
	if err != nil {
		t.Fatal(err)
	}
	slowest := webhooks.slowest()
	e.note("%d sources, all passes within %s (timeout %s); webhooks were given up within %s", len(sources), longest,
		hostTimeout, slowest.Round(time.Millisecond))
	if longest > hostTimeout+time.Second || slowest > hostTimeout+time.Second {
		t.Errorf("a pass took up to %s, a webhook %s", longest, slowest)
	}
}

// allFail waits until all sources have failed.
func (n *tenant) allFail(c *controller, sources []reconcile.Object) {
	n.Helper()
	for _, o := range sources {
		testenv.Eventually(n, o.GetName()+" fails", func() error {
			c.mustLive()
			if err := n.client.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if !apimeta.IsStatusConditionFalse(o.CommonStatus().Conditions, "Ready") {
				return fmt.Errorf("conditions %v", o.CommonStatus().Conditions)
			}
			return nil
		})
	}
}

// connections measures how long clients keep connections.
type connections struct {
	mu      sync.Mutex
	longest time.Duration
}

func (c *connections) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = max(c.longest, d)
}

// slowest returns how long a connection was kept at most; 0 if none has ended.
func (c *connections) slowest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.longest
}

const webhook = 4 // the kind of a Provider

// hanging returns an object of one of five kinds that uses a host.
func (n *tenant) hanging(i int, address string) client.Object {
	timeout, name := &meta.Duration{Duration: hostTimeout}, n.named(fmt.Sprint("host-", i))
	switch i % 5 {
	case 0:
		return &sourcev1.GitRepository{ObjectMeta: name, Spec: sourcev1.GitRepositorySpec{
			URL: "http://" + address + "/x", Interval: hour, Timeout: timeout}}
	case 1:
		return &sourcev1.OCIRepository{ObjectMeta: name, Spec: sourcev1.OCIRepositorySpec{
			URL: "oci://" + address + "/x", Interval: hour, Insecure: true, Timeout: timeout}}
	case 2:
		return &sourcev1.HelmRepository{ObjectMeta: name, Spec: sourcev1.HelmRepositorySpec{
			URL: "http://" + address, Interval: hour, Timeout: timeout}}
	case 3:
		return &sourcev1.Bucket{ObjectMeta: name, Spec: sourcev1.BucketSpec{BucketName: "x", Endpoint: address,
			Insecure: true, Interval: hour, Timeout: timeout,
			SecretRef: &meta.LocalObjectReference{Name: "keys"}}}
	}
	return &notificationv1.Provider{ObjectMeta: name, Spec: notificationv1.ProviderSpec{
		Type: notificationv1.GenericProvider, Address: "http://" + address, Timeout: timeout}}
}

// newHangingHost returns the address of a host that answers nothing, or the beginning of an answer and then a byte from
// time to time. It measures how long its clients wait.
func newHangingHost(t *testing.T, random *rand.Rand, held *connections) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		close(done)
		_ = l.Close()
	})
	begin := []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n",
		"HTTP/1.1 500 X\r\nContent-Length: 100000\r\n\r\n",
		"HTTP/1.1 307 X\r\nLocation: /again\r\n"}[random.IntN(6)]
	drips := random.IntN(2) == 0
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test ended
			}
			go drip(conn, begin, drips, done, held)
		}
	}()
	return l.Addr().String()
}

// drip sends the beginning of an answer, and then a byte from time to time, until the client ends the connection.
func drip(conn net.Conn, begin string, drips bool, done <-chan struct{}, held *connections) {
	defer conn.Close()
	start, gone := time.Now(), make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // until the client ends
		held.add(time.Since(start))
	}()
	_, err := conn.Write([]byte(begin))
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for err == nil {
		select {
		case <-done:
			return
		case <-gone:
			return
		case <-tick.C:
			if drips {
				_, err = conn.Write([]byte("x"))
			}
		}
	}
}

// longestPass returns the smallest bound that no pass of a source has exceeded.
func (c *controller) longestPass() (time.Duration, error) {
	metrics, err := c.scrape()
	if err != nil {
		return 0, err
	}
	counts, totals := map[string]map[float64]float64{}, map[string]float64{}
	for name, value := range metrics {
		if kind, ok := label(name, "controller_runtime_reconcile_time_seconds_count", "controller"); ok {
			totals[kind] = value
		}
		kind, ok := label(name, "controller_runtime_reconcile_time_seconds_bucket", "controller")
		text, _ := label(name, "controller_runtime_reconcile_time_seconds_bucket", "le")
		bound, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		if counts[kind] == nil {
			counts[kind] = map[float64]float64{}
		}
		counts[kind][bound] = value
	}
	if len(counts) == 0 {
		return 0, errors.New("no metrics of passes")
	}
	longest := 0.0
	for kind, buckets := range counts {
		smallest := 1e9
		for bound, value := range buckets {
			if value >= totals[kind] {
				smallest = min(smallest, bound)
			}
		}
		longest = max(longest, smallest)
	}
	return time.Duration(longest * float64(time.Second)), nil
}

// label returns the value of a label in the name of a metric.
func label(name, metric, key string) (string, bool) {
	labels, ok := strings.CutPrefix(name, metric+"{")
	if !ok {
		return "", false
	}
	_, after, ok := strings.Cut(labels, key+`="`)
	value, _, _ := strings.Cut(after, `"`)
	return value, ok
}
