package receiver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestRequestBeforeCacheIsSynced checks that a starting replica returns a status that senders retry, not 404.
func TestRequestBeforeCacheIsSynced(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := notificationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	unstarted, err := cache.New(testenv.Cluster(t), cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(&Server{Cache: unstarted, Check: &hook.Checker{}, Clock: clock.RealClock{}})
	w := httptest.NewRecorder()
	server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, hook.Path("token", "name", "namespace"),
		strings.NewReader("{}")))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("got status %d, body %q, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
	}
}
