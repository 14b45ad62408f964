// Package system runs the controllers against a real API server, in a namespace of the test. Only tests may import it.
package system

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
)

// System is a namespace with controllers that watch only it, a git server, and a client.
type System struct {
	*testing.T
	Client    client.Client
	Git       *testenv.Git
	Namespace string
	RunsAs    string // service account of the controllers; empty for the administrator
	Storage   string // value of --storage-path
	Backend   artifact.S3Options
	Requests  *Requests
	Configure []func(*options.Options)
	Stop      func() // stops the controllers

	labels map[string]string // of the objects that shared controllers reconcile
	within time.Duration     // how long checks may fail; 0 for as long as those of [testenv.Eventually]
}

// Requests records the requests of the controllers to the API server.
type Requests struct {
	mu    sync.Mutex
	lines []string
}

// Reset forgets all recorded requests.
func (r *Requests) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = nil
}

// Matching returns the requests whose method and path contain a text.
func (r *Requests) Matching(text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, l := range r.lines {
		if strings.Contains(l, text) {
			found = append(found, l)
		}
	}
	return found
}

// RoundTripper is a function that implements [http.RoundTripper].
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var install sync.Once

// New starts the controllers in this process and a namespace of the test. Both end with the test.
func New(t *testing.T, configure ...func(*options.Options)) *System {
	t.Helper()
	s := Prepare(t, configure...)
	s.Start()
	return s
}

// Prepare creates everything but the controllers, which [System.Start] starts.
func Prepare(t *testing.T, configure ...func(*options.Options)) *System {
	t.Helper()
	s := prepare(t, configure...)
	s.Git = testenv.NewGit(t)
	return s
}

// prepare creates the namespace and the client.
func prepare(t *testing.T, configure ...func(*options.Options)) *System {
	t.Helper()
	cfg := testenv.Cluster(t)
	install.Do(func() { definitions.Install(t, cfg) })
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &System{T: t, Client: c, Namespace: testenv.Namespace(t), Storage: t.TempDir(), Requests: &Requests{},
		Configure: configure}
}

// For returns the same system for a sub-test, which failures are reported to.
func (s *System) For(t *testing.T) *System {
	sub := *s
	sub.T = t
	return &sub
}

// eventually waits until a check returns nil, as [testenv.Eventually] does.
func (s *System) eventually(what string, check func() error) {
	s.Helper()
	if s.within > 0 {
		testenv.Within(s, s.within, what, check)
	} else {
		testenv.Eventually(s, what, check)
	}
}

// Start runs the controllers in this process until the end of the test or a call of Stop.
func (s *System) Start() {
	s.Helper()
	if s.labels != nil {
		s.Fatal("the controllers are shared: start some with system.New")
	}
	cfg := testenv.Cluster(s)
	if s.RunsAs != "" {
		cfg = s.ServiceAccountConfig(cfg, s.RunsAs)
	}
	o := s.Options()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			s.Requests.mu.Lock()
			s.Requests.lines = append(s.Requests.lines, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
			s.Requests.mu.Unlock()
			return next.RoundTrip(selecting(r, o.WatchLabelSelector))
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- manager.Run(ctx, cfg, o) }()
	s.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-result; err != nil {
			s.Errorf("the controllers failed: %v", err)
		}
	})
	s.Cleanup(func() { s.Stop() })
}

// Options returns the options that the controllers start with.
func (s *System) Options() options.Options {
	o := options.Options{
		Controllers: options.AllControllers, StoragePath: s.Storage, StorageAddr: "127.0.0.1:0",
		RetentionTTL:   time.Minute,
		RetentionCount: 2, HelmLimits: helm.DefaultLimits,
		Backend: s.Backend, MetricsAddr: "0", HealthAddr: "0", RuntimeNamespace: s.Namespace, Concurrent: 4,
		KubeAPIQPS: 1000, KubeAPIBurst: 1000,
		Retry: reconcile.Retry{Min: 50 * time.Millisecond, Max: time.Second}, Resync: time.Hour,
		GracePeriod:         3 * time.Minute, // of a machine that may stand still
		StrictSubstitutions: true, SOPSAgeSecret: "sops-age", ConfigsSelector: "reconcile.fluxcd.io/watch=Enabled",
		LogLevel: "error", LogEncoding: "console",
	}
	for _, c := range s.Configure {
		c(&o)
	}
	return o
}
