package manager_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// unserved is a cluster that does not know Kustomizations for as long as there are answers left to hide.
func unserved(s *system.System, answers int64) (start func(context.Context) error, asked *atomic.Int64) {
	asked = &atomic.Int64{}
	cfg := testenv.Cluster(s)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return system.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/api" || r.URL.Path == "/apis" {
				r = r.Clone(r.Context())
				r.Header.Set("Accept", "application/json") // a list of groups, whose kinds are asked for one by one
			}
			if r.URL.Path != "/apis/kustomize.toolkit.fluxcd.io/v1" || asked.Add(1) > answers {
				return next.RoundTrip(r)
			}
			w := httptest.NewRecorder()
			http.NotFound(w, r)
			return w.Result(), nil
		})
	})
	return func(ctx context.Context) error {
		_, err := manager.Connect(ctx, cfg, s.Options())
		return err
	}, asked
}

func TestDefinitionsThatAreServedLateAreWaitedFor(t *testing.T) {
	start, asked := unserved(system.Prepare(t), 2)
	if err := start(t.Context()); err != nil || asked.Load() < 3 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

func TestDefinitionsThatAreMissingAreNamed(t *testing.T) {
	start, _ := unserved(system.Prepare(t), 1<<60)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing waits for a process that is told to stop
	err := start(ctx)
	if !apimeta.IsNoMatchError(err) || !strings.Contains(err.Error(), `"Kustomization"`) ||
		!strings.Contains(err.Error(), "sluice install") {
		t.Error(err)
	}
}
