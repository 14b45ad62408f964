package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/stubsecrets"
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
	for _, test := range []struct {
		filter string
		budget int64
		status int
	}{
		{budget: 1 << 20},
		{filter: "true", budget: 1 << 30},
		{filter: "true", budget: 16 << 20, status: http.StatusServiceUnavailable},
	} {
		budget := guard.NewBudget(test.budget)
		r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "github"}}
		r.Spec.ResourceFilter = test.filter
		lease, err := reserve(guard.WithBudget(t.Context(), budget), r, body)
		var refusal *hook.Refusal
		if errors.As(err, &refusal) != (test.status != 0) || refusal != nil && refusal.Status != test.status {
			t.Errorf("budget %d: the error is %v, want status %d", test.budget, err, test.status)
		}
		if used := budget.Used() > 0; used != (test.filter != "" && test.status == 0) {
			t.Errorf("budget %d: %d bytes are used", test.budget, budget.Used())
		}
		if lease.Release(); budget.Used() != 0 {
			t.Errorf("budget %d: %d bytes are used after the request", test.budget, budget.Used())
		}
	}
}

// TestFiltersAreCompiledForVerifiedRequests has a Receiver whose filter does not compile: who cannot prove anything
// does not learn that, as a filter costs time and memory.
func TestFiltersAreCompiledForVerifiedRequests(t *testing.T) {
	const token = "secret"
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "github"},
		Spec: notificationv1.ReceiverSpec{Type: notificationv1.GitHubReceiver, ResourceFilter: "1 +",
			SecretRef: &meta.LocalObjectReference{Name: "token"},
			Resources: []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "app"}}}}
	s := &Server{Plans: &Plans{Secrets: stubsecrets.Reader{"token": {"token": []byte(token)}}}, Check: &hook.Checker{},
		Clock: clock.RealClock{}}
	NewServer(s)
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("{}"))
	for signature, want := range map[string]int{"sha256=00": http.StatusUnauthorized,
		"sha256=" + hex.EncodeToString(mac.Sum(nil)): http.StatusServiceUnavailable} {
		req := httptest.NewRequest(http.MethodPost, hook.Path(token, r.Name, r.Namespace), strings.NewReader("{}"))
		req.Header.Set("X-Hub-Signature-256", signature)
		_, err := s.handle(t.Context(), httptest.NewRecorder(), req, r)
		var refusal *hook.Refusal
		if !errors.As(err, &refusal) || refusal.Status != want {
			t.Errorf("%s: %v, want status %d", signature, err, want)
		}
	}
}

func TestFiltersAreCompiledOnce(t *testing.T) {
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "github"}}
	r.Spec.ResourceFilter = "res.metadata.name == 'a'"
	for range 5000 {
		r.Spec.Resources = append(r.Spec.Resources, notificationv1.ReceiverResource{Kind: "GitRepository", Name: "a",
			Filter: "true"})
	}
	p, err := (&Plans{}).complete(r, hook.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	first, last := p.targets[0].filters, p.targets[len(p.targets)-1].filters
	if len(first) != 2 || first[0] != last[0] || first[1] != last[1] || first[0] == first[1] {
		t.Errorf("the filters are %v and %v", first, last)
	}
	for i := range maxExpressions {
		r.Spec.Resources[i].Filter = fmt.Sprintf("%d == 0", i)
	}
	if _, err := (&Plans{}).complete(r, hook.Trust{}); err == nil || !strings.Contains(err.Error(), "more than 100") {
		t.Errorf("a Receiver with %d filters: %v", len(filtersOf(r)), err)
	}
	many := notificationv1.OIDCProvider{Validations: make([]notificationv1.OIDCValidation, maxExpressions+1)}
	if _, err := providers([]notificationv1.OIDCProvider{many}); err == nil || !strings.Contains(err.Error(),
		"more than 100") {
		t.Errorf("a provider with %d validations: %v", len(many.Validations), err)
	}
}
