package receiver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/guard"
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

// TestBodiesForFiltersTakeMemory has a body of many values, which takes far more memory than its bytes.
func TestBodiesForFiltersTakeMemory(t *testing.T) {
	body := []byte("[" + strings.Repeat("{},", 200_000) + "{}]")
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "github"}}
	for _, test := range []struct {
		filters []*expression.Expression
		budget  int64
		status  int
	}{
		{budget: 1 << 20},
		{filters: make([]*expression.Expression, 1), budget: 1 << 30},
		{filters: make([]*expression.Expression, 1), budget: 16 << 20, status: http.StatusServiceUnavailable},
	} {
		budget := guard.NewBudget(test.budget)
		c := &call{plan: &plan{targets: []target{{filters: test.filters}}}, receiver: r}
		lease, err := c.read(guard.WithBudget(t.Context(), budget), hook.Delivery{}, body)
		var refusal *hook.Refusal
		if errors.As(err, &refusal) != (test.status != 0) || refusal != nil && refusal.Status != test.status {
			t.Errorf("budget %d: the error is %v, want status %d", test.budget, err, test.status)
		}
		if used := budget.Used() > 0; used != (test.filters != nil && test.status == 0) {
			t.Errorf("budget %d: %d bytes are used", test.budget, budget.Used())
		}
		if lease.Release(); budget.Used() != 0 {
			t.Errorf("budget %d: %d bytes are used after the request", test.budget, budget.Used())
		}
	}
}
