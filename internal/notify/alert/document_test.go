package alert

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/notify/bus"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// TestNamesOfCommitStatusesReadAlertAndProvider: spec.commitStatusExpr has both at hand.
func TestNamesOfCommitStatusesReadAlertAndProvider(t *testing.T) {
	b, book := newBench(t), newBook()
	var said struct{ Context string }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
				t.Error(err)
			}
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	b.secret("login", map[string]string{"token": "s3cret"})
	p := b.object(func(s *v1beta3.ProviderSpec) {
		s.Type, s.Address, s.SecretRef = "gitea", server.URL+"/org/repo", ref("login")
		s.CommitStatusExpr = `alert.kind + "/" + alert.metadata.name + "/" + provider.kind + "/" + provider.metadata.name + "/" + event.involvedObject.name`
	})
	key := client.ObjectKeyFromObject(p)
	book.setProvider(key, p)
	a := book.alert("on-call", v1beta3.AlertSpec{})
	s := &Sender{Router: book.Router, Resolver: b.Resolver, Health: &Health{Edges: reconcile.NewEdges()}}
	e := of("Kustomization", "apps", "web", with("revision", "main@sha1:0123456789abcdef0123456789abcdef01234567"))
	if err := s.Send(t.Context(), bus.Delivery{Alert: client.ObjectKeyFromObject(a), Provider: key, Event: e}); err != nil {
		t.Fatal(err)
	}
	if want := "Alert/on-call/Provider/p/web"; said.Context != want {
		t.Errorf("the name is %q, want %q", said.Context, want)
	}
}
