package alert

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestFailureIsReportedOnce(t *testing.T) {
	b := newResolverTest(t)
	h := newHost(t, (*httptest.Server).Start)
	router := newTestRouter()
	p := b.object(func(s *notificationv1.ProviderSpec) { s.Address = h.URL })
	key := client.ObjectKeyFromObject(p)
	router.setProvider(key, p)
	health := &Health{Edges: reconcile.NewEdges()}
	s := &Sender{Router: router.Router, Resolver: b.Resolver, Health: health}
	d := delivery.Delivery{Provider: key, Event: newEvent("Kustomization", "apps", "web")}
	retried := 0
	step := &Provider{Resolver: b.Resolver, Health: health, Retry: func(types.NamespacedName) { retried++ }}
	reconciled := func() string {
		return fmt.Sprint(step.Reconcile(t.Context(), &reconcile.Pass[*notificationv1.Provider]{Object: p.DeepCopy()}))
	}
	if err := s.Send(t.Context(), d); err != nil || health.Err(key) != nil || reconciled() != initialized {
		t.Fatalf("%v, %s", err, reconciled())
	}
	h.respondWith(http.StatusServiceUnavailable)
	first := s.Send(t.Context(), d)
	expectFault(t, "unavailable", first, "SendFailed", "503", false)
	if !strings.Contains(reconciled(), "503") {
		t.Errorf("the outcome of the Provider is %s", reconciled())
	}
	if health.record(key, s.Send(t.Context(), d)) {
		t.Error("the same failure is reported twice")
	}
	if !health.record(key, fault.New(SendFailedReason, "another failure")) {
		t.Error("another failure is not reported")
	}
	h.respondWith(http.StatusOK)
	if err := s.Send(t.Context(), d); err != nil || reconciled() != initialized {
		t.Errorf("%v, %s", err, reconciled())
	}
	if retried != 0 {
		t.Errorf("pending deliveries were retried %d times without a change", retried)
	}
	h.respondWith(http.StatusServiceUnavailable)
	expectFault(t, "unavailable again", s.Send(t.Context(), d), "SendFailed", "503", false)
	p.Generation++
	if got := reconciled(); got != initialized || retried != 1 {
		t.Errorf("new generation: outcome %s, retried %d times", got, retried)
	}

	p.Spec.Suspend = true
	_, before := h.last()
	if err := s.Send(t.Context(), d); err != nil {
		t.Errorf("suspended Provider: %v", err)
	}
	if _, after := h.last(); after != before {
		t.Error("a suspended Provider sent an event")
	}
	router.setProvider(key, nil)
	expectFault(t, "deleted Provider", s.Send(t.Context(), d), "ValidationFailed", "not found", true)
}

func TestCommitStatusExprReadsAlert(t *testing.T) {
	b := newResolverTest(t)
	h := newHost(t, (*httptest.Server).Start)
	h.respondWith(http.StatusCreated)
	b.secret("login", map[string]string{"token": "s3cr3t-of-the-test"})
	router := newTestRouter()
	p := b.object(func(s *notificationv1.ProviderSpec) {
		s.Type, s.Address, s.SecretRef = notificationv1.GitHubProvider, h.URL+"/org/fleet", ref("login")
		s.CommitStatusExpr = "alert.spec.eventMetadata.cluster + '/' + provider.metadata.name + '/' + " +
			"event.involvedObject.name"
	})
	router.setProvider(client.ObjectKeyFromObject(p), p)
	a := router.alert("a", notificationv1.AlertSpec{EventMetadata: map[string]string{"cluster": "prod-1"}})
	s := &Sender{Router: router.Router, Resolver: b.Resolver, Health: &Health{Edges: reconcile.NewEdges()}}
	e := newEvent("Kustomization", "apps", "web",
		withMetadata("revision", "main@sha1:0123456789abcdef0123456789abcdef01234567"))
	if err := s.Send(t.Context(), delivery.Delivery{Alert: client.ObjectKeyFromObject(a),
		Provider: client.ObjectKeyFromObject(p), Event: e}); err != nil {
		t.Fatal(err)
	}
	r, n := h.last()
	if !strings.HasSuffix(r.URL.Path, "/statuses/0123456789abcdef0123456789abcdef01234567") ||
		!strings.Contains(h.bodies[n-1], `"prod-1/p/web"`) {
		t.Errorf("%s: %s", r.URL, h.bodies)
	}
}
