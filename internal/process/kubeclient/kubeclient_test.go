package kubeclient_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// connectWithoutKustomizations returns a function that connects to a cluster whose first responses do not list the
// API group of Kustomizations, and the number of requests for that group.
func connectWithoutKustomizations(s *system.System, responses int64) (func(context.Context) error, *atomic.Int64) {
	var requests atomic.Int64
	cfg := testenv.Cluster(s)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return system.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/api" || r.URL.Path == "/apis" {
				r = r.Clone(r.Context())
				r.Header.Set("Accept", "application/json") // without aggregated discovery: one request per group
			}
			if r.URL.Path != "/apis/kustomize.toolkit.fluxcd.io/v1" || requests.Add(1) > responses {
				return next.RoundTrip(r)
			}
			w := httptest.NewRecorder()
			http.NotFound(w, r)
			return w.Result(), nil
		})
	})
	return func(ctx context.Context) error {
		o := s.Options()
		health, err := kubeclient.NewHealth(o.HealthAddr)
		if err != nil {
			return err
		}
		defer health.Close()
		_, err = kubeclient.Connect(ctx, cfg, o, nil, health)
		return err
	}, &requests
}

func TestConnectWaitsForDefinitions(t *testing.T) {
	t.Parallel()
	connect, requests := connectWithoutKustomizations(system.Prepare(t), 2)
	if err := connect(t.Context()); err != nil || requests.Load() < 3 {
		t.Errorf("%d requests, error %v; want at least 3 requests and no error", requests.Load(), err)
	}
}

func TestConnectNamesMissingDefinitions(t *testing.T) {
	t.Parallel()
	connect, _ := connectWithoutKustomizations(system.Prepare(t), 1<<60)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a process that is stopped does not wait
	err := connect(ctx)
	if !apimeta.IsNoMatchError(err) || !strings.Contains(err.Error(), "Kustomization of ") ||
		!strings.Contains(err.Error(), "sluice install") {
		t.Errorf("got error %v, want one that names the kind and the command", err)
	}
}

func TestReadyzNamesMissingDefinitions(t *testing.T) {
	t.Parallel()
	s := system.Prepare(t)
	addr := testenv.FreeAddress(t)
	s.Configure = append(s.Configure, func(o *options.Options) { o.HealthAddr = addr })
	connect, _ := connectWithoutKustomizations(s, 1<<60)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- connect(ctx) }()
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(body)
	}
	testenv.Eventually(t, "/readyz names the kind", func() error {
		code, body := get("/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "Kustomization of "+
			"kustomize.toolkit.fluxcd.io/v1. Run `sluice install`") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	if code, body := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("connected without definitions")
	}
}
