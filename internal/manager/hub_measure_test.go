package manager

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/fleet/report"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// hubFlags is the variable with the flags of the hub that this test binary runs as.
const hubFlags = "SLUICE_TEST_HUB"

// TestServeHub is the hub of [TestMeasureHub], in a process of its own.
func TestServeHub(t *testing.T) {
	var o options.HubOptions
	if err := json.Unmarshal([]byte(os.Getenv(hubFlags)), &o); err != nil {
		t.Skip("it runs only as a child of another test")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	if err := RunHub(t.Context(), cfg, o); err != nil {
		t.Fatal(err)
	}
}

// measuredHub is a hub with reporters.
type measuredHub struct {
	*testing.T
	options    options.HubOptions
	kubeconfig string
	process    *exec.Cmd
	tokens     []string // by cluster
	reader     *client.Client
	url        string
}

// newMeasuredHub starts a hub at which clusters are registered.
func newMeasuredHub(t *testing.T, clusters int) *measuredHub {
	t.Helper()
	cfg, namespace := testenv.Cluster(t), testenv.Namespace(t)
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	addr := testenv.FreeAddress(t)
	h := &measuredHub{T: t, tokens: make([]string, clusters), kubeconfig: testenv.Kubeconfig(t), url: "https://" + addr,
		options: options.HubOptions{Addr: addr, ExternalURL: "https://" + addr, TLSCertFile: cert, TLSKeyFile: key,
			Namespace: namespace, LoginOptions: options.LoginOptions{Session: time.Hour, TokenLogin: true},
			StoragePath: t.TempDir(), LogLevel: "info", LogEncoding: "json", MetricsAddr: "0", HealthAddr: "0"}}
	group := guard.NewGroup("registering clusters")
	group.SetLimit(20)
	for n := range clusters {
		group.Go(func() error {
			secret, token, err := newCluster(n, h.url)
			if err != nil {
				return err
			}
			h.tokens[n] = token
			_, err = clients.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	h.reader = h.client(0)
	h.start()
	t.Cleanup(h.kill)
	h.await("the start", time.Minute, func(l *fleet.List) bool { return len(l.Clusters) == clusters })
	return h
}

// client returns the client of a cluster.
func (h *measuredHub) client(n int) *client.Client {
	h.Helper()
	c, err := client.New(client.Options{URL: h.url, CAFile: h.options.TLSCertFile, Cluster: fmt.Sprintf("edge-%d", n),
		Token: func(context.Context) (string, error) { return h.tokens[n], nil }})
	if err != nil {
		h.Fatal(err)
	}
	return c
}

func (h *measuredHub) start() (began time.Time) {
	h.Helper()
	flags, err := json.Marshal(h.options)
	if err != nil {
		h.Fatal(err)
	}
	h.process = exec.Command(os.Args[0], "-test.run=^TestServeHub$", "-test.timeout=1h")
	h.process.Env = append(os.Environ(), hubFlags+"="+string(flags), "KUBECONFIG="+h.kubeconfig)
	began = time.Now()
	if err := h.process.Start(); err != nil {
		h.Fatal(err)
	}
	return began
}

func (h *measuredHub) kill() {
	_ = h.process.Process.Kill()
	_ = h.process.Wait()
}

// await lists until the clusters are as wanted, and returns the list.
func (h *measuredHub) await(what string, limit time.Duration, ok func(*fleet.List) bool) *fleet.List {
	h.Helper()
	var list *fleet.List
	testenv.Within(h, limit, what, func() (err error) {
		if list, err = h.reader.List(h.Context(), "", 0); err == nil && !ok(list) {
			err = errors.New("the clusters are not as wanted")
		}
		return err
	})
	return list
}

// usage returns the CPU time and the resident memory of the hub, and its peak.
func (h *measuredHub) usage() (cpu time.Duration, memory string) {
	dir := fmt.Sprintf("/proc/%d/", h.process.Process.Pid)
	stat, _ := os.ReadFile(dir + "stat")
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, text := range fields[11:13] {
		ticks, _ := strconv.Atoi(text)
		cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	status, _ := os.ReadFile(dir + "status")
	return cpu, strings.Join(regexp.MustCompile(`(VmHWM|VmRSS|RssAnon):.*`).FindAllString(string(status), -1), ", ")
}

// TestMeasureHub measures a hub with SLUICE_MEASURE=1000 reporters over TLS: memory and CPU without changes, the time
// until a change is visible, a restart, and how reporters come back after the hub was away.
func TestMeasureHub(t *testing.T) {
	clusters, err := strconv.Atoi(os.Getenv("SLUICE_MEASURE"))
	if err != nil {
		t.Skip("takes minutes; set SLUICE_MEASURE to the number of clusters")
	}
	h := newMeasuredHub(t, clusters)
	cpu, memory := h.usage()
	t.Logf("%d clusters are registered, none reports: %s of CPU, %s", clusters, cpu, memory)

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, changes, reporters := t.Context(), make([]atomic.Int64, clusters), make([]*report.Reporter, clusters)
	for n := range clusters {
		reporters[n] = h.report(n, &changes[n])
	}
	began := time.Now()
	h.await("the first reports", 2*time.Minute, allReport)
	t.Logf("all report after %s", time.Since(began).Round(time.Millisecond))
	time.Sleep(5 * time.Second) // what is measured is a rest, which has no end to wait for
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("a reporter takes %d kB", int64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/
		int64(clusters)/1000)

	cpu, _ = h.usage()
	const rest = 2 * time.Minute
	time.Sleep(rest) // the time of the measurement
	later, memory := h.usage()
	t.Logf("without changes: %.1f%% of a core, %s", 100*(later-cpu).Seconds()/rest.Seconds(), memory)

	var times []time.Duration
	for i := range 20 {
		n := (i*37 + 1) % clusters
		list, err := h.reader.List(ctx, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		began, version := time.Now(), list.Version
		changes[n].Add(1)
		reporters[n].Changed()
		for isVisible := false; !isVisible; {
			if list, err = h.reader.List(ctx, version, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			version = list.Version
			isVisible = slices.ContainsFunc(list.Clusters, func(c fleet.Cluster) bool {
				return c.Name == reporters[n].Cluster && c.Summary.Counts["failed"] == int(changes[n].Load())
			})
		}
		times = append(times, time.Since(began).Round(time.Millisecond))
	}
	slices.Sort(times)
	t.Logf("a change is visible after %s, %s at most, of %d", times[len(times)/2], times[len(times)-1], len(times))
	time.Sleep(35 * time.Second) // the last batch of heartbeats is written

	h.kill()
	began = h.start()
	h.await("the restart", time.Minute, func(l *fleet.List) bool {
		return len(l.Clusters) == clusters && allReport(l)
	})
	t.Logf("a restart is complete after %s", time.Since(began).Round(time.Millisecond))

	h.kill()
	time.Sleep(2 * time.Minute) // the outage after which all report again
	began = h.start()
	h.await("the start", time.Minute, func(l *fleet.List) bool { return len(l.Clusters) == clusters })
	ready := time.Now()
	list := h.await("the reports after an outage", 2*time.Minute, func(l *fleet.List) bool {
		return !slices.ContainsFunc(l.Clusters, func(c fleet.Cluster) bool { return c.Received.Before(began) })
	})
	perSecond := map[int64]int{}
	most, last := 0, time.Duration(0)
	for _, c := range list.Clusters {
		perSecond[c.Received.Unix()]++
		most, last = max(most, perSecond[c.Received.Unix()]), max(last, c.Received.Sub(ready))
	}
	_, memory = h.usage()
	t.Logf("after two minutes without a hub, all report within %s of its start, %d in a second at most, %s",
		last.Round(time.Millisecond), most, memory)
}

// run runs what a cluster does until the test ends.
func (h *measuredHub) run(f func(ctx context.Context)) {
	ctx, stop := context.WithCancel(h.Context())
	var running guard.WaitGroup
	running.Go("a cluster", func() { f(ctx) })
	h.Cleanup(func() { stop(); running.Wait() })
}

// report lets a cluster report, with a number of objects that failed.
func (h *measuredHub) report(n int, failed *atomic.Int64) *report.Reporter {
	h.Helper()
	r := report.New()
	r.Client, r.Cluster, r.Log, r.Now = h.client(n), fmt.Sprintf("edge-%d", n), logr.Discard(), time.Now
	r.Summarize = func(context.Context) (*fleet.Summary, error) { return measuredSummary(n, failed.Load()), nil }
	h.run(func(ctx context.Context) { _ = r.Start(ctx) })
	return r
}

// allReport reports whether the hub heard of all clusters lately.
func allReport(l *fleet.List) bool {
	return !slices.ContainsFunc(l.Clusters, func(c fleet.Cluster) bool { return c.Status != fleet.Reporting })
}

// measuredSummary is that of a cluster of three sources and a few problems.
func measuredSummary(n int, failed int64) *fleet.Summary {
	s := &fleet.Summary{Time: time.Now(), Version: "v0.1.0", Labels: map[string]string{"region": "eu",
		"stage": "production"}, Counts: fleet.Counts{"ready": 120, "failed": int(failed), "waiting": 1},
		Kinds: map[string]fleet.Counts{"Kustomization": {"ready": 60, "failed": 2}, "HelmRelease": {"ready": 40},
			"GitRepository": {"ready": 3}, "OCIRepository": {"ready": 17}}}
	at := time.Date(2026, 11, 29, 12, 0, n, 0, time.UTC)
	for i := range 3 {
		s.Revisions = append(s.Revisions, fleet.Revision{Source: fmt.Sprintf("GitRepository/flux-system/fleet-%d", i),
			URL: "https://git.example.com/platform/fleet", Revision: "main@sha1:" + strings.Repeat("a", 40),
			Subject: "Raise the memory of the payment service", Author: "Mona", Committed: at, Fetched: at, Objects: 20,
			Current: 20, Since: at})
	}
	for i := range 2 {
		s.Problems = append(s.Problems, fleet.Problem{Object: fmt.Sprintf("Kustomization/team/app-%d", i),
			State: "failed", Reason: "HealthCheckFailed", Since: at, Affected: 3, Message: "Deployment 'team/app' " +
				"has 0 of 3 replicas: container 'app' waits in CrashLoopBackOff. Read its log"})
	}
	s.Changes = []fleet.Change{{Gate: "Gate/team/release", Object: "Kustomization/team/web", Since: at, Required: 2,
		Revision: "main@sha1:" + strings.Repeat("b", 40), Groups: []string{"releasers"}}}
	return s
}

// newCluster returns the Secret of a cluster with keys of its own, and a token of it.
func newCluster(n int, audience string) (*corev1.Secret, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	jwks, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k",
		Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		return nil, "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		return nil, "", err
	}
	const issuer, subject = "https://kubernetes.default.svc", "system:serviceaccount:flux-system:sluice"
	token, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: issuer, Subject: subject,
		Audience: jwt.Audience{audience}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}).Serialize()
	name := fmt.Sprintf("edge-%d", n)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{fleet.ClusterLabel: name}},
		Data: map[string][]byte{"issuer": []byte(issuer), "jwks": jwks, "labels": []byte("stage=production"),
			"reads": []byte("true")}}, token, err
}

// certificate writes a certificate for 127.0.0.1, and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"},
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
