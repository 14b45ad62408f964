package bench

import (
	"flag"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var (
	remoteClusters = flag.Int("clusters", 200, "how many clusters BenchmarkClusters deploys to")
	deadClusters   = flag.Int("dead", 20, "how many more do not answer")
)

// BenchmarkClusters deploys an app of four objects to each of 200 clusters from one process, and commits a change of
// all, while 20 more clusters do not answer. The clusters are addresses of one API server, with a kubeconfig each: to
// Sluice they are as different as real ones.
func BenchmarkClusters(b *testing.B) {
	f := newFleet(b, *remoteClusters, fourObjects)
	probes := f.remote()
	head1 := f.commit("1", f.all()...)
	f.declare()
	t := newTable(fmt.Sprintf("%d clusters of four objects each, and %d that do not answer", *remoteClusters,
		*deadClusters),
		"", "time s", "CPU s", "requests", "most memory, MB", "% of a core", "probes of a dead cluster a minute")
	for b.Loop() {
		quiet(b)
		log, wait := testenv.NewAuditLog(b), f.follow(head1)
		start := usage{at: time.Now()}
		p := startController(b, f.namespace)
		wait()
		created := since(start, p.usage())
		t.row("create all", created.took.Seconds(), created.cpu.Seconds(), p.requests(log, testenv.Request{}),
			p.memory("VmHWM"), "", "")

		head2 := f.commit("2", f.all()...)
		log, wait, start = testenv.NewAuditLog(b), f.follow(head2), p.usage()
		f.pull()
		wait()
		changed := since(start, p.usage())
		t.row("change all", changed.took.Seconds(), changed.cpu.Seconds(), p.requests(log, testenv.Request{}),
			p.memory("VmHWM"), "", "")

		quiet(b)
		log, start = testenv.NewAuditLog(b), p.usage()
		before := probes.Load()
		<-time.After(*idleFor)
		idle := since(start, p.usage())
		each := float64(probes.Load()-before) / idle.took.Minutes() / float64(max(1, *deadClusters))
		t.row("idle", idle.took.Seconds(), idle.cpu.Seconds(), p.requests(log, testenv.Request{}), p.memory("VmRSS"),
			100*idle.cpu.Seconds()/idle.took.Seconds(), each)
		b.ReportMetric(p.memory("VmRSS"), "MB")
		b.ReportMetric(each, "probes/min")
		p.stop()
	}
}

// remote makes each app one for a cluster of its own, and declares apps of clusters that do not answer. The counter is
// of connections to those.
func (f *fleet) remote() (probes *atomic.Int64) {
	f.b.Helper()
	cfg, err := clientcmd.LoadFromFile(testenv.Kubeconfig(f.b))
	if err != nil {
		f.b.Fatal(err)
	}
	alive, probes := f.listen(), &atomic.Int64{}
	dead := f.listen()
	go func() {
		for {
			c, err := dead.Accept()
			if err != nil {
				return
			}
			probes.Add(1)
			_ = c.Close() // it does not answer
		}
	}()
	var server, host string
	for _, c := range cfg.Clusters {
		server = strings.TrimPrefix(c.Server, "https://")
		host, _, _ = strings.Cut(server, ":")
		c.TLSServerName = host
	}
	go forward(alive, server, &atomic.Int64{})
	secret := func(n int, l net.Listener) string {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		own := cfg.DeepCopy()
		for _, c := range own.Clusters {
			c.Server = fmt.Sprintf("https://127.1.%d.%d:%s", n/250, 1+n%250, port)
		}
		raw, err := clientcmd.Write(*own)
		if err != nil {
			f.b.Fatal(err)
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("cluster-%d", n)},
			StringData: map[string]string{"value": string(raw)}}
		if err := f.client.Create(f.b.Context(), s); err != nil {
			f.b.Fatal(err)
		}
		return s.Name
	}
	f.change = func(app int, k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: secret(app, alive)}}
	}
	for n := range *deadClusters {
		k := f.kustomization(0)
		k.Name = fmt.Sprintf("dead-%d", n)
		k.Spec.RetryInterval = &meta.Duration{Duration: 10 * time.Second}
		k.Spec.KubeConfig = &meta.KubeConfigReference{
			SecretRef: &meta.SecretKeyReference{Name: secret(*remoteClusters+n, dead)}}
		if err := f.client.Create(f.b.Context(), k); err != nil {
			f.b.Fatal(err)
		}
	}
	return probes
}

// listen listens on all addresses of this machine, so that each cluster has one of its own.
func (f *fleet) listen() net.Listener {
	f.b.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		f.b.Fatal(err)
	}
	f.b.Cleanup(func() { _ = l.Close() }) // ends what accepts
	return l
}
