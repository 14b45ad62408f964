package receiver_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestReceiversWithTheSamePath has Receivers whose tokens, names and namespaces join to the same text. The older one
// keeps its path, which is that of Flux, and its webhooks; the newer one is refused until the older one is deleted.
func TestReceiversWithTheSamePath(t *testing.T) {
	h := newHooks(t)
	h.GitRepository("app", func(*sourcev1.GitRepository) {})
	app := func(r *notificationv1.ReceiverSpec) {
		r.Resources = []notificationv1.ReceiverResource{{Kind: sourcev1.GitRepositoryKind, Name: "app"}}
	}
	first := h.receiver("b-hook", notificationv1.GenericReceiver, app, meta.SucceededReason)

	t.Log("another token ends where the name of the first one starts")
	h.Secret("longer", map[string]string{"token": webhookToken + "b-"})
	second := h.receiver("hook", notificationv1.GenericReceiver, func(r *notificationv1.ReceiverSpec) {
		app(r)
		r.SecretRef.Name = "longer"
	}, meta.FailedReason)
	h.NotReady(&notificationv1.Receiver{}, "hook", meta.FailedReason,
		"Set another token in the Secret of spec.secretRef, or give the Receiver another name")
	if second.Status.WebhookPath != "" {
		t.Errorf("the newer Receiver has the path %q", second.Status.WebhookPath)
	}
	if err := h.Get(first, "b-hook"); err != nil || first.Status.WebhookPath == "" {
		t.Fatalf("the older Receiver has lost its path: %v", err)
	}
	for range 30 {
		if code, body := h.post(first.Status.WebhookPath, ""); code != http.StatusOK {
			t.Fatalf("a webhook of the older Receiver got %d, %s", code, body)
		}
	}
	if err := h.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.Gone(first, "b-hook")
	h.RequestReconcile(second, "hook")
	testenv.Eventually(t, "the newer Receiver has the path", func() error {
		if err := h.Get(second, "hook"); err != nil || second.Status.WebhookPath == "" {
			return fmt.Errorf("%w, %+v", err, second.Status)
		}
		return nil
	})
}
